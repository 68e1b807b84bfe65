"""The checker of the order of grants: who waits, and who is next. See `test_order_checker`."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from proof.checkers import order
from proof.checkers.order import rules
from proof.checkers.order.clocks import Clocks
from proof.checkers.order.ledger import Key, Ticket
from proof.checkers.order.line import Line
from proof.checkers.order.plants import KEY, change, drop, finds, found, holds
from proof.checkers.order.requests import Asked
from proof.checkers.order.rules import Findings
from proof.checkers.order.story import BEGAN, Story, Turn
from proof.histories.records import Audit, Injected

# The queue.


def waiting_line(store: str = "postgres") -> Story:
    """Return a story of three who wait for one, and are served."""
    story = Story(store)
    holder = story.take(KEY, "a/1")
    line = []
    for name in "bcd":
        story.wait(0.05)
        line.append(story.take(KEY, f"{name}/1"))
    for _ in range(3):
        story.wait(0.2)
        for each in line:
            each.refresh()
    holder.release()
    for each in line:
        each.ask()
        story.wait(0.05)
        each.release()
    return story


def test_a_line_that_is_served_in_its_order_violates_nothing() -> None:
    holds(waiting_line(), rules.NOT_PASSED, rules.FIRST_COME)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_ticket_that_is_passed_at_the_store_is_found(store: str) -> None:
    story = waiting_line(store)
    rows = [row for row in story.history.audit if row.owner in ("b/1", "c/1") and row.what != "ticket"]
    swap_tickets(story.history.audit, rows, "attempt-2", "attempt-3")
    violations = found(story)
    assert "past ticket 1 of b/1" in violations[rules.NOT_PASSED.name]
    assert "b/1" in violations[rules.FIRST_COME.name]


def swap_tickets(audit: list[Audit], rows: list[Audit], one: str, two: str) -> None:
    """Let two of a queue change places when they are granted."""
    owners = {row.attempt: row.owner for row in rows if row.attempt in (one, two)}
    numbers = {row.attempt: row.number for row in rows if row.what == "unticket"}
    other = {one: two, two: one}
    for place, row in enumerate(audit):
        if row in rows and row.attempt in other:
            attempt = other[row.attempt]
            audit[place] = replace(
                row, attempt=attempt, owner=owners[attempt], number=numbers[attempt] if row.number else 0
            )


def test_a_newcomer_that_is_granted_past_a_live_ticket_is_found() -> None:
    story = Story()
    holder = story.take(KEY, "a/1")
    story.take(KEY, "b/1")
    queued = len(story.history.audit)
    story.wait(0.1)
    tickets = story.tables.locks[KEY].tickets
    tickets.clear()  # the store forgets it
    holder.release()
    passing = story.take(KEY, "c/1")
    story.history.audit[queued:] = [replace(row, waiters=1) for row in story.history.audit[queued:]]
    violations = found(story)
    assert set(violations) == {rules.NOT_PASSED.name, rules.FIRST_COME.name}
    assert f"c/1 is granted {passing.token} past ticket 1 of b/1" in violations[rules.NOT_PASSED.name]
    assert str(passing.token) in violations[rules.FIRST_COME.name]


def test_a_ticket_that_has_run_out_may_be_passed() -> None:
    story = Story()
    holder = story.take(KEY, "a/1", ttl=3.0)
    story.take(KEY, "b/1")  # is never heard of again
    story.wait(2.0)
    holder.release()
    story.take(KEY, "c/1").release()
    holds(story)
    assert order.check(story.history).figures["tickets died"] == 1


def lose_the_ticket(story: Story) -> None:
    """Let the lock be free when it was to be handed over, and let who waited learn of it."""
    owner = next(row.owner for row in story.history.audit if row.what == "ticket")
    change(story.history.audit, lambda row: row.owner == owner and row.what == "lock", owner="", attempt="")
    turn = next(n for n, call in enumerate(story.history.calls) if call.owner == owner)
    story.wait(0.2)
    Turn(story, turn, "attempt-2", "").refresh()


def test_a_live_ticket_that_is_lost_is_found() -> None:
    story = Story()
    holder = story.take(KEY, "a/1")
    story.take(KEY, "b/1")
    story.wait(0.1)
    holder.release()
    lose_the_ticket(story)
    finds(story, rules.KEPT, "ticket 1 of b/1")


@pytest.mark.parametrize(("store", "violated"), [("postgres", set()), ("sqlite", {rules.KEPT.name})])
def test_a_heartbeat_counts_once_it_was_answered_and_on_sqlite_at_once(
    store: str, violated: set[str]
) -> None:
    """On a server it does not wait for the lock's row: who settles the key may not have seen it yet."""
    story = Story(store)
    holder = story.take(KEY, "a/1", ttl=3.0)
    waits = story.take(KEY, "b/1")
    story.wait(1.4)
    waits.refresh()
    change(
        story.history.asks, lambda ask: ask.kind == "Refresh", outcome="unknown", answer="", returned=math.inf
    )
    story.wait(0.2)
    holder.release()
    lose_the_ticket(story)
    assert set(found(story)) == violated


def test_tickets_of_an_operation_go_when_they_are_told() -> None:
    story = Story()
    terms = {"operation": True}
    doer = story.take("operation:1", "a/1", terms=terms)
    story.take("operation:1", "b/1", terms=terms)
    story.wait(0.1)
    story.tables.outcome("operation:1", doer.token, "a/1")
    doer.release()
    for place, call in enumerate(story.history.calls):
        if call.kind == "acquire":
            story.history.calls[place] = replace(
                call, kind="operate", value="a/1", outcome="ok", returned=story.boot
            )
    drop(story.history.calls, lambda call: call.kind == "release")
    holds(story, rules.KEPT, rules.ONE_SUCCESS, rules.REPORTED)


def unserved(seconds: float) -> Story:
    """Return a story in which the store does not look who is next for so long."""
    story = Story()
    story.take(KEY, "a/1").walk_away()
    waits = story.take(KEY, "b/1")
    for _ in range(round((seconds + 1) / 0.2)):
        story.wait(0.198)
        waits.refresh(settles=False)
    waits.ask()
    return story


def test_nobody_waits_for_long_for_what_is_free() -> None:
    """As soon as it is noticed: 9.5 seconds are long, and so are two."""
    for seconds in (9.5, 2.2):
        story = unserved(seconds)
        violations = found(story)
        assert "the bounds are 3.2 s and 1.7 s" in violations[rules.NOT_STUCK.name]
        assert set(violations) == {rules.NOT_STUCK.name, rules.REASON.name}
        story.history.faults.append(Injected("pause database", "", BEGAN, story.boot))
        assert rules.NOT_STUCK.name not in found(story)


def test_a_heartbeat_or_two_may_pass_before_somebody_is_served() -> None:
    assert rules.NOT_STUCK.name not in found(unserved(1.4))


def test_who_waits_for_what_is_held_is_not_stuck() -> None:
    story = Story()
    holder = story.take(KEY, "a/1", ttl=30.0)
    waits = story.take(KEY, "b/1")
    for _ in range(70):
        story.wait(0.2)
        waits.refresh()
    holder.release()
    waits.ask()
    holds(story)


def an_operation(*, told: bool = True) -> Story:
    """Return a story of one who waits for an operation, and whose ticket goes when that is done."""
    story = Story()
    terms = {"operation": True}
    doer = story.take("operation:1", "a/1", terms=terms)
    waits = story.take("operation:1", "b/1", terms=terms)
    story.wait(0.1)
    story.tables.outcome("operation:1", doer.token, "a/1")
    doer.release()
    with_answer = story.ask("Acquire", "operation:1", waits.attempt, owner="b/1")
    with_answer("Done")
    for place, call in enumerate(story.history.calls):
        if call.kind == "acquire":
            story.history.calls[place] = replace(
                call, kind="operate", value="a/1", outcome="ok", returned=story.boot
            )
    drop(story.history.calls, lambda call: call.kind == "release")
    if not told:
        drop(story.history.audit, lambda row: row.what == "outcome")
    return story


def test_the_last_ticket_of_an_operation_does_not_go_without_an_outcome() -> None:
    """That its client is told later that it is done is no reason: the step has to say so."""
    holds(an_operation(), rules.KEPT)
    finds(an_operation(told=False), rules.KEPT, "ticket 1 of b/1")


@pytest.mark.parametrize("answer", ["NotHeld", "Refused", "Deadlocked"])
def test_what_its_client_hears_later_does_not_explain_why_a_ticket_went(answer: str) -> None:
    story = Story()
    holder = story.take(KEY, "a/1")
    story.take(KEY, "b/1")
    story.wait(0.1)
    holder.release()
    lose_the_ticket(story)
    change(story.history.asks, lambda ask: ask.kind == "Refresh", kind="Acquire", owner="b/1", answer=answer)
    finds(story, rules.KEPT, "ticket 1 of b/1")


def test_a_step_of_the_clock_excuses_only_what_is_near_it() -> None:
    """Three seconds later everything is as it was."""
    violated = {rules.NOT_PASSED.name, rules.FIRST_COME.name}
    for ago, excused in ((6.0, set()), (0.5, {rules.FIRST_COME.name})):
        story = waiting_line()
        rows = [row for row in story.history.audit if row.owner in ("b/1", "c/1") and row.what != "ticket"]
        swap_tickets(story.history.audit, rows, "attempt-2", "attempt-3")
        step = Injected("database clock step", "", BEGAN - ago - 0.1, BEGAN - ago, 0, "+0.5 s", ("belief",))
        story.history.faults.append(step)
        assert violated - excused <= set(found(story)), ago


@pytest.mark.parametrize(("until", "told"), [(30, []), (90, [rules.NOT_PASSED.name])])
def test_who_asks_when_its_ticket_is_dead_is_granted_behind_those_who_wait(
    until: int, told: list[str]
) -> None:
    """All are granted in one step, whose rows still have the ticket that a late heartbeat has moved."""
    findings, key = Findings(), Key(KEY)
    for number, attempt, end in ((1, "a", until), (2, "b", 90)):
        ticket = Ticket(Audit(number, 10, "ticket", KEY, 0, attempt, attempt, True, end, 10, number))
        key.left[attempt] = ticket
    granted = [Audit(9, 50, "hold", KEY, token, who, who) for token, who in ((20, "b"), (21, "a"))]
    line = Line(findings, Asked([]), Clocks([], [], []), one_writer=True)
    line.check(key, granted, granted, 50)
    assert [each.rule for each in findings.verdict().violations] == told
