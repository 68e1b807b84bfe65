"""The checker of the order of grants, tried on histories that are right, and then made wrong in one place.

Each falsehood must be found by the rule that is there for it, and by no other; what it says must name the
values. The stories are told by `proof.checkers.order.story`. Beliefs, queues and what was updated have
files of their own.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proof.checkers import order
from proof.checkers.order import rules
from proof.checkers.order.plants import (
    KEY,
    ONE,
    READER,
    TWO,
    a_day,
    a_turn,
    change,
    drop,
    finds,
    found,
    holds,
)
from proof.checkers.order.story import BEGAN, STEP, Story
from proof.checkers.order.tables import CLAIM

# A long story in which everything happens as it should.


def test_a_day_on_which_all_is_well_violates_nothing() -> None:
    holds(
        a_day(),
        rules.ONE_TURN,
        rules.RISE,
        rules.RISE_AT_STORE,
        rules.FIT,
        rules.ONE_OWNER,
        rules.STAYS_OVER,
        rules.LET_GO,
        rules.ASKED_FOR,
        rules.AGREE,
        rules.RELEASED,
        rules.NOTHING_LEFT,
        rules.HONEST,
        rules.BELIEFS,
        rules.NOT_PASSED,
        rules.KEPT,
        rules.FIRST_COME,
        rules.UPDATES_THERE,
        rules.UPDATES_KNOWN,
        rules.UPDATES_IN_ORDER,
        rules.ADDS_UP,
    )


def test_takeovers_and_whatever_else_is_worth_telling_are_counted() -> None:
    figures = order.check(a_day().history).figures
    assert figures["takeovers"] == 1
    assert figures["leases expired"] == 1
    assert figures["re-entries"] == 1
    assert figures["handed over"] == 4
    assert figures["calls try refused"] == 1
    assert figures["bare_lost"] == 0
    assert figures["acquire median, µs"] == 2000


def test_every_rule_says_which_promise_it_defends() -> None:
    assert len({rule.name for rule in rules.RULES}) == len(rules.RULES) >= 24
    assert all(rule.promise and rule.says for rule in rules.RULES)
    assert set(order.check(Story().history).checked) == {rule.name for rule in rules.RULES}


# Tokens.


def test_two_turns_that_were_told_one_token_are_found() -> None:
    story = Story()
    token = a_turn(story, KEY, "a/1")
    story.take(KEY, "b/1", lost=True)  # nobody knows what it got, but for what it says itself
    drop(story.history.calls, lambda call: call.owner == "b/1")
    story.call("acquire", KEY, "b/1")
    change(story.history.calls, lambda call: call.owner == "b/1", called=BEGAN)
    story.returns(len(story.history.calls) - 1, "ok", token=token)
    violations = found(story)
    assert f"a/1 and b/1 (at {BEGAN:.6f}) were told {token}" in violations[rules.ONE_TURN.name]
    assert rules.AGREE.name in violations  # the tables know better


def test_a_token_that_falls_in_real_time_is_found() -> None:
    story = Story()
    high = a_turn(story, KEY, "a/1")
    low = a_turn(story, KEY, "b/1")
    # The tables agree with what they were told: one has been granted and answered before the other asked.
    calls = story.history.calls
    first, second = calls[0], calls[2]
    calls[0] = replace(first, called=second.called, returned=second.returned)
    calls[2] = replace(second, called=first.called, returned=first.returned)
    violations = found(story)
    assert f"was granted {high}; b/1 had been told {low} before" in violations[rules.RISE.name]


def test_a_lost_answer_does_not_hide_a_token_that_falls() -> None:
    story = Story()
    turn = story.take(KEY, "a/1", lost=True)
    story.wait(2.0)
    later = story.take(KEY, "b/1")
    change(story.history.calls, lambda call: call.owner == "a/1", called=story.boot + 1)
    violations = found(story)
    assert turn.call.outcome == "unknown"
    assert f"b/1 had been told {later.token} before" in violations[rules.RISE.name]


def test_a_token_that_falls_at_the_store_is_found() -> None:
    story = Story()
    before = a_turn(story, KEY, "a/1")
    token = before - 7
    story.take(KEY, "b/1", lost=True)
    row = story.history.audit[-1]
    story.history.audit[-1] = replace(row, token=token)
    story.history.calls.pop()
    finds(story, rules.RISE_AT_STORE, token, before, "b/1")


def test_a_lease_that_is_over_cannot_be_entered_again() -> None:
    story = Story()
    before = a_turn(story, KEY, "a/1")
    story.take(KEY, "a/1", lost=True)
    story.history.audit[-1] = replace(story.history.audit[-1], token=before)
    story.history.calls.pop()
    finds(story, rules.RISE_AT_STORE, before, "was over")


# Exclusion.


def test_a_lease_that_is_granted_before_the_end_of_another_is_found() -> None:
    story = Story()
    first = story.take(KEY, "a/1", ttl=2.0)
    first.trust(first.since)
    end = story.history.audit[0].expires_at
    story.tables.locks[KEY].holds[
        first.attempt
    ].end -= 1_500_000  # what the store goes by is not what it wrote
    story.wait(1.0)
    story.take(KEY, "b/1").walk_away()
    finds(story, rules.FIT, first.token, end, "b/1")


def test_a_lease_that_has_ended_to_the_microsecond_may_be_taken_over() -> None:
    story = Story()
    story.take(KEY, "a/1").walk_away()
    end = story.history.audit[0].expires_at
    story.wait((end - story.now) / 1e6 - STEP)
    story.take(KEY, "b/1").walk_away()
    assert story.history.audit[-1].granted_at == end
    holds(story, rules.FIT)
    change(story.history.audit, lambda row: row.owner == "a/1", expires_at=end + 1)
    finds(story, rules.FIT, end + 1)


def test_a_lease_that_another_clock_than_the_stores_lets_begin_is_found() -> None:
    """A client that is late by an hour takes over what is held, and writes its own time into the row."""
    story = Story()
    first = story.take(KEY, "a/1", ttl=2.0)
    first.trust(first.since)
    story.tables.locks[KEY].holds.clear()
    story.take(KEY, "b/1", lost=True)
    hour = 3_600_000_000
    row = story.history.audit[-1]
    story.history.audit[-1] = replace(row, token=row.token + hour, granted_at=row.granted_at + hour)
    finds(story, rules.FIT, first.token, "b/1")


def test_a_lease_that_lasts_longer_than_was_asked_is_found() -> None:
    story = Story()
    story.take(KEY, "a/1", ttl=2.0).walk_away()
    row = story.history.audit[0]
    story.history.audit[0] = replace(row, expires_at=row.expires_at + 10)
    finds(story, rules.LASTS, row.expires_at + 10, 2_000_000)


@pytest.mark.parametrize(("terms", "beside"), [(READER, None), (None, READER), (TWO, TWO), (READER, ONE)])
def test_leases_that_do_not_fit_beside_each_other_are_found(terms: Any, beside: Any) -> None:
    key = "permits:1" if TWO in (terms, beside) else "shared:1"
    story = Story()
    story.take(key, "a/1", terms=READER)
    story.take(key, "b/1", terms=READER).walk_away()
    for owner, wanted in (("a/1", terms), ("b/1", beside)):
        for place, row in enumerate(story.history.audit):
            if row.what == "hold" and row.owner == owner:
                story.history.audit[place] = replace(row, terms=json.dumps(wanted) if wanted else "")
    finds(story, rules.FIT, "b/1", "a/1")


def test_what_fits_may_be_held_together() -> None:
    story = Story()
    turns = [story.take("permits:1", "a/1", terms=ONE), story.take("permits:1", "b/1", terms=TWO)]
    turns += [story.take("shared:1", f"{name}/1", terms=READER) for name in "abcd"]
    for turn in turns:
        turn.release()
    holds(story, rules.FIT, rules.BELIEFS)


def test_a_hold_in_the_lease_of_another_is_found() -> None:
    story = Story()
    story.take(KEY, "a/1")
    story.take(KEY, "a/1", kind="reenter", lost=True)
    for place, row in enumerate(story.history.audit):
        if row.attempt == "attempt-2":
            story.history.audit[place] = replace(row, owner="b/1")
    finds(story, rules.ONE_OWNER, "b/1", "a/1")


def test_a_lease_that_comes_back_to_life_is_found() -> None:
    story = Story()
    turn = story.take(KEY, "a/1")
    story.wait(0.6)
    turn.renew()
    turn.walk_away()
    holds(story, rules.STAYS_OVER)
    end = story.history.audit[0].expires_at - 500_000
    change(story.history.audit, lambda row: row.what == "lock", expires_at=end)
    finds(story, rules.STAYS_OVER, end, story.history.audit[-1].expires_at)


def test_a_lock_that_is_shut_is_granted_to_nobody() -> None:
    story = Story()
    story.take(KEY, "a/1").walk_away()
    story.wait(1.5)
    story.take(KEY, "b/1").walk_away()
    shut = story.history.audit[0].expires_at + 900_000
    row = replace(
        story.history.audit[0], attempt="", expires_at=shut, id=2, at=story.history.audit[0].expires_at
    )
    story.history.audit.insert(1, row)
    finds(story, rules.FIT, "shut until", shut)


# The books.


def test_rows_that_do_not_add_up_are_found() -> None:
    story = Story()
    story.take(KEY, "a/1").walk_away()
    change(story.history.audit, lambda row: row.what == "lock", waiters=1)
    violations = found(story)
    assert "counts 0 holds and 1 tickets, and has 0 and 0" in violations[rules.ADDS_UP.name]


def test_many_violations_of_a_rule_are_told_of_in_part_and_counted() -> None:
    story = a_day()
    story.history.resources["fenced:1"] += [f"w{n}" for n in range(rules.MOST_TOLD + 5)]
    violations = order.check(story.history).violations
    assert len(violations) == rules.MOST_TOLD + 1
    assert violations[-1].text == "and 5 more"


def test_a_hand_over_that_is_not_claimed_costs_its_window_and_is_no_takeover() -> None:
    story = Story()
    holder = story.take(KEY, "a/1")
    story.take(KEY, "b/1")  # never comes back
    late = story.take(KEY, "c/1")
    holder.release()
    story.wait(CLAIM + 0.1)
    late.ask()
    late.release()
    holds(story, rules.FIT)
    figures = order.check(story.history).figures
    assert figures["takeovers"] == 0
    assert figures["leases expired unclaimed"] == 1
