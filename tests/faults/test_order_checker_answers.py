"""The checker of the order of grants: what was asked for and answered. See `test_order_checker`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proof.checkers import order
from proof.checkers.order import rules
from proof.checkers.order.plants import (
    KEY,
    a_day,
    a_turn,
    change,
    drop,
    finds,
    found,
    holds,
)
from proof.checkers.order.story import Story, Turn
from proof.histories.records import LAST_LOOK, Injected

# Scope, and what was asked for.


def test_a_hold_that_ends_without_being_asked_to_is_found() -> None:
    story = Story()
    turn = story.take(KEY, "a/1")
    story.wait(0.2)
    turn.release()
    drop(story.history.asks, lambda ask: ask.kind == "Release")
    drop(story.history.calls, lambda call: call.kind == "release")
    finds(story, rules.LET_GO, turn.token, "nobody had asked")


def test_a_release_that_was_asked_for_too_late_explains_nothing() -> None:
    story = Story()
    turn = story.take(KEY, "a/1")
    story.wait(0.2)
    turn.release()
    asked = story.boot + 0.1
    change(story.history.asks, lambda ask: ask.kind == "Release", called=asked, returned=asked + 1)
    finds(story, rules.LET_GO, turn.token)


def test_whoever_breaks_a_lease_explains_its_end() -> None:
    story = Story()
    turn = story.take(KEY, "a/1")
    story.wait(0.2)
    broken = story.ask("Break", KEY, "")
    story.tables.remove(KEY, turn.attempt)
    broken("Broken", token=turn.token)
    turn.trust(turn.trusted_until)  # it has not heard of it yet
    holds(story, rules.LET_GO)
    assert order.check(story.history).figures["leases broken"] == 1


def test_a_grant_that_nobody_asked_for_is_found() -> None:
    story = Story()
    story.take(KEY, "a/1").walk_away()
    a_turn(story, "plain:2", "b/1")
    asks, calls = story.history.asks, story.history.calls
    drop(asks, lambda ask: ask.owner == "a/1")
    drop(calls, lambda call: call.owner == "a/1")
    finds(story, rules.ASKED_FOR, "a/1", "attempt-1")


def a_day_and_a_turn_that_is_not_recorded(owner: str) -> Story:
    story = a_day()
    asks, calls, trusts = len(story.history.asks), len(story.history.calls), len(story.history.trusts)
    story.wait(1)
    a_turn(story, KEY, owner)
    del story.history.asks[asks:], story.history.calls[calls:], story.history.trusts[trusts:]
    return story


def test_whoever_looks_when_all_is_over_need_not_be_recorded() -> None:
    holds(a_day_and_a_turn_that_is_not_recorded(LAST_LOOK))


def test_nobody_else_is_granted_anything_when_all_is_over() -> None:
    found_in = order.check(a_day_and_a_turn_that_is_not_recorded("looks/1").history).violations
    assert {violation.rule for violation in found_in} == {rules.ASKED_FOR.name, rules.LET_GO.name}


# Answers, releases and refusals.


def test_a_grant_that_is_not_in_the_tables_is_found() -> None:
    story = Story()
    token = a_turn(story, KEY, "a/1")
    change(story.history.calls, lambda call: call.kind == "acquire", token=token + 1)
    story.history.trusts.clear()
    finds(story, rules.AGREE, token, token + 1)


def test_a_grant_that_was_not_made_while_it_was_asked_for_is_found() -> None:
    story = Story()
    for second in range(4):
        a_turn(story, KEY, f"a/{second}")
        story.wait(1)
    change(
        story.history.calls, lambda call: call.owner == "a/2", called=story.boot, returned=story.boot + 0.001
    )
    violations = found(story)
    assert f"asked at {story.boot:.6f}" in violations[rules.AGREE.name]


def test_a_release_that_is_not_in_the_tables_is_found() -> None:
    story = Story("mariadb")
    turn = story.take(KEY, "a/1")
    story.wait(0.1)
    turn.release()
    drop(story.history.audit, lambda row: not row.owner)
    story.wait(2)
    a_turn(story, KEY, "b/1")
    finds(story, rules.RELEASED, turn.token)


def test_a_release_may_be_lost_when_the_database_crashes_right_after_it() -> None:
    """PostgreSQL answers releases before they are on its disk: that only delays the next one."""
    story = Story("postgres")
    turn = story.take(KEY, "a/1")
    story.wait(0.1)
    turn.release()
    drop(story.history.audit, lambda row: not row.owner)
    story.history.faults.append(Injected("kill database", "", story.boot + 0.1, story.boot + 0.5))
    story.wait(2)
    a_turn(story, KEY, "b/1")
    assert not found(story)
    assert order.check(story.history).figures["releases lost in a crash"] == 1
    change(story.history.faults, lambda _: True, fault="pause client")
    finds(story, rules.RELEASED, turn.token)


def test_a_release_that_was_answered_long_before_a_crash_is_not_lost_in_it() -> None:
    story = Story("postgres")
    turn = story.take(KEY, "a/1")
    story.wait(0.1)
    turn.release()
    drop(story.history.audit, lambda row: not row.owner)
    story.history.faults.append(Injected("kill database", "", story.boot + 1.2, story.boot + 1.5))
    story.wait(2)
    a_turn(story, KEY, "b/1")
    finds(story, rules.RELEASED, turn.token)


def test_a_refused_call_that_has_something_is_found() -> None:
    story = Story()
    turn = story.take(KEY, "a/1", lost=True)
    story.returns(turn.number, "refused")
    token = story.history.audit[0].token
    violations = found(story)
    assert set(violations) == {rules.NOTHING_LEFT.name, rules.RESOLVED.name}
    assert f"and has {token} until" in violations[rules.NOTHING_LEFT.name]


def test_a_ticket_that_outlives_its_refused_call_is_found() -> None:
    story = Story("sqlite")
    holder = story.take(KEY, "a/1", ttl=60.0)
    waits = story.take(KEY, "b/1")
    story.returns(waits.number, "refused", error="LockTimeout")
    for _ in range(30):
        story.wait(0.5)
        waits.refresh()
    holder.walk_away()
    finds(story, rules.NOTHING_LEFT, "b/1", "ticket 1")


def test_a_ticket_that_has_run_out_may_be_cleared_away_later() -> None:
    story = Story("sqlite")
    holder = story.take(KEY, "a/1", ttl=60.0)
    waits = story.take(KEY, "b/1")
    story.returns(waits.number, "refused", error="LockTimeout")
    story.wait(30.0)
    audit = story.history.audit
    (ticket,) = [row for row in audit if row.what == "ticket" and row.owner == "b/1"]
    cleared = replace(ticket, id=audit[-1].id + 1, at=ticket.at + 30_000_000, what="unticket")
    audit += [cleared, replace(audit[-1], id=cleared.id + 1, at=cleared.at, waiters=0)]
    holder.walk_away()
    holds(story, rules.NOTHING_LEFT)


@pytest.mark.parametrize("applied", [True, False])
def test_calls_without_an_answer_are_resolved_by_the_tables(applied: bool) -> None:
    story = Story()
    story.take(KEY, "a/1", lost=True)
    if not applied:
        del story.history.audit[:]
    figures = order.check(story.history).figures
    assert (figures["unknown applied"], figures["unknown not applied"]) == (applied, not applied)
    holds(story, rules.RESOLVED)


@pytest.mark.parametrize("applied", [True, False])
def test_releases_without_an_answer_are_resolved_by_the_tables(applied: bool) -> None:
    story = Story()
    turn = story.take(KEY, "a/1")
    turn.release(lost=True)
    if not applied:
        story.history.audit.pop()
    figures = order.check(story.history).figures
    assert (figures["unknown applied"], figures["unknown not applied"]) == (applied, not applied)
    holds(story, rules.RESOLVED)


def test_a_call_that_was_refused_beside_one_that_was_not_must_not_have_been_done() -> None:
    story = Story()
    first = story.take(KEY, "a/1")
    again = story.take(KEY, "a/1", kind="reenter")
    again.release()
    first.release()
    holds(story, rules.RELEASED)
    change(story.history.calls, lambda call: call.kind == "reenter", outcome="refused", token=0, error="Busy")
    violations = found(story)
    assert "attempt-2 of a/1 has had" in violations[rules.RESOLVED.name]


def test_a_release_that_nobody_was_told_of_is_found() -> None:
    story = Story()
    turn = story.take(KEY, "a/1")
    story.wait(0.1)
    turn.release()
    drop(story.history.calls, lambda call: call.kind == "release")
    finds(story, rules.RESOLVED, "a/1 has released it 1 times")


def test_a_release_that_the_store_was_too_ill_for_may_be_done_later() -> None:
    """The library pursues it: what was told to have failed is given back all the same."""
    story = Story()
    turn = story.take(KEY, "a/1")
    story.wait(0.1)
    turn.release()
    error = "StoreUnavailable: the disk is full"
    change(story.history.calls, lambda call: call.kind == "release", outcome="refused", error=error)
    assert "a/1 has released it 1 times" in found(story)[rules.RESOLVED.name]
    change(story.history.asks, lambda ask: ask.kind == "Release", kind="Withdraw", answer="Withdrawn")
    assert rules.RESOLVED.name not in found(story)


def test_a_call_may_ask_again_when_its_grant_came_too_late_to_be_trusted() -> None:
    """Its second attempt is the same call: the first is given back of itself."""
    story = Story()
    turn = story.take(KEY, "a/1", lost=True)
    late = Turn(story, turn.number, "attempt-1.1", "")
    story.tables.remove(KEY, turn.attempt)
    story.ask("Withdraw", KEY, turn.attempt)("Withdrawn")
    change(story.history.asks, lambda ask: ask.kind == "Withdraw", called=story.boot - 0.004)
    late.ask()
    late.release()
    holds(story, rules.RELEASED)
    drop(story.history.calls, lambda call: call.kind == "release")
    finds(story, rules.RESOLVED, "a/1 has released it 1 times")


def test_a_call_may_ask_again_when_its_grant_has_run_out_before_it_heard_of_it() -> None:
    """Nobody gives back the first, so one release is all that there may be."""
    story = Story()
    turn = story.take(KEY, "a/1", lost=True)
    story.wait(1.5)
    late = Turn(story, turn.number, "attempt-1.1", "")
    late.ask()
    late.release()
    holds(story, rules.RELEASED)
    drop(story.history.calls, lambda call: call.kind == "release")
    finds(story, rules.RESOLVED, "a/1 has released it 1 times")
