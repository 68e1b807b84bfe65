"""The checker of the order of grants: trust, updates and results. See `test_order_checker`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proof.checkers import order
from proof.checkers.order import rules
from proof.checkers.order.plants import KEY, READER, a_turn, change, drop, finds, found, holds
from proof.checkers.order.story import BEGAN, Story, Turn
from proof.histories.records import Injected, Trust

# Beliefs.


def test_who_trusts_a_lease_past_its_end_is_found() -> None:
    story = Story()
    turn = story.take(KEY, "a/1")
    turn.walk_away()
    story.look()
    end = story.history.audit[0].expires_at
    holds(story, rules.HONEST)
    change(story.history.trusts, lambda _: True, until=turn.since + 1.01)
    finds(story, rules.HONEST, turn.token, end)


def test_who_trusts_a_lease_that_it_has_given_back_is_found() -> None:
    story = Story()
    turn = story.take(KEY, "a/1")
    story.wait(0.2)
    turn.release()
    change(story.history.trusts, lambda _: True, until=turn.trusted_until)
    finds(story, rules.HONEST, turn.token)


def test_an_answer_that_is_trusted_for_too_long_is_found() -> None:
    story = Story()
    turn = story.take(KEY, "a/1")
    change(story.history.calls, lambda _: True, trusted_until=turn.since + 1.01)
    finds(story, rules.HONEST, turn.token)


def test_trust_in_what_one_never_had_is_found() -> None:
    story = Story()
    story.history.trusts.append(Trust("w", KEY, "a/1", 77, story.boot, story.boot + 1))
    finds(story, rules.HONEST, "a/1", 77)


def test_two_who_believe_at_once_are_found() -> None:
    story = Story()
    first, second = a_turn(story, KEY, "a/1"), a_turn(story, KEY, "b/1")
    earlier = story.history.trusts[0].until - 0.01
    change(story.history.trusts, lambda trust: trust.owner == "b/1", since=earlier)
    finds(story, rules.BELIEFS, first, second, "a/1", "b/1")


def test_the_belief_of_one_who_died_counts_as_long_as_it_was_alive() -> None:
    story = Story()
    story.take(KEY, "a/1")
    story.take("plain:2", "a/2")
    story.take(KEY, "b/1", ttl=1.0)
    story.wait(0.5)
    story.call("acquire", "plain:3", "a/3")  # its last words
    other = story.take("plain:4", "b/2").call
    token = story.history.calls[0].token
    story.history.trusts.append(Trust("b", KEY, "b/2", token + 1, other.returned - 0.2, other.returned))
    change(story.history.audit, lambda row: row.what == "lock", token=token)
    assert f"so did a/1 with {token}" in found(story)[rules.BELIEFS.name]


def test_readers_may_believe_at_once_and_a_writer_may_not() -> None:
    story = Story()
    turns = [story.take("shared:1", f"{name}/1", terms=READER) for name in "ab"]
    for turn in turns:
        turn.release()
    writer = story.take("shared:1", "c/1")
    writer.release()
    holds(story, rules.BELIEFS)
    change(story.history.trusts, lambda trust: trust.owner == "c/1", since=turns[1].since + 0.0005)
    change(story.history.trusts, lambda trust: trust.owner == "a/1", until=turns[1].since + 0.001)
    finds(story, rules.BELIEFS, "c/1", "a/1", "b/1")


@pytest.mark.parametrize("excuses", [("belief",), ()])
def test_a_stepped_clock_excuses_beliefs_that_end_during_it_and_no_others(excuses: tuple[str, ...]) -> None:
    story = Story()
    for second in range(20):
        a_turn(story, "plain:2", f"z/{second}")
        story.wait(1)
    turn = story.take(KEY, "a/1")
    turn.walk_away()
    change(story.history.trusts, lambda trust: trust.owner == "a/1", until=turn.since + 1.01)
    fault = Injected("database clock step", "", turn.since + 0.9, turn.since + 1.2, excuses=excuses)
    story.history.faults.append(fault)
    if excuses:
        assert not found(story)
        assert order.check(story.history).figures["excused trust"] == 2  # what it trusted, and was told to
    else:
        finds(story, rules.HONEST, turn.token)
    earlier = replace(fault, began=BEGAN, ended=BEGAN + 1)
    change(story.history.faults, lambda _: True, began=earlier.began, ended=earlier.ended)
    finds(story, rules.HONEST, turn.token)


# Entering by the hand-over.


def handed_over() -> tuple[Story, Turn]:
    """Hand the lock to somebody who has just said again that it waits."""
    story = Story()
    first, second = story.take(KEY, "a/1"), story.take(KEY, "b/1")
    story.wait(0.3)
    second.refresh()
    story.wait(0.1)
    first.release()
    return story, second


def test_who_enters_by_the_hand_over_and_never_claims_is_believed() -> None:
    story, turn = handed_over()
    turn.enter()
    story.wait(0.1)
    turn.release()
    a_turn(story, KEY, "c/1")
    holds(story, rules.AGREE, rules.HONEST, rules.BELIEFS)
    assert order.check(story.history).figures["entered by the hand-over"] == 1


def test_who_enters_and_claims_by_a_renewal_is_believed() -> None:
    story, turn = handed_over()
    turn.enter()
    story.wait(0.2)
    turn.renew()
    story.wait(0.7)
    turn.release()
    holds(story, rules.AGREE, rules.HONEST, rules.STAYS_OVER)


def test_whose_hand_over_was_never_written_and_who_entered_all_the_same_is_found() -> None:
    story, turn = handed_over()
    turn.enter()
    change(story.history.asks, lambda ask: ask.kind == "Enter", token=turn.token + 1)
    assert rules.AGREE.name in found(story)


def test_who_trusts_a_hand_over_past_its_claim_window_is_found() -> None:
    story, turn = handed_over()
    turn.enter()
    turn.walk_away()
    story.look()
    holds(story, rules.HONEST)
    change(story.history.trusts, lambda trust: trust.owner == "b/1", until=turn.since + 0.51)
    finds(story, rules.HONEST, turn.token)


def test_a_takeover_from_somebody_who_entered_counts_as_one() -> None:
    story, turn = handed_over()
    turn.enter()
    turn.walk_away()
    story.wait(0.6)
    a_turn(story, KEY, "c/1")
    holds(story, rules.BELIEFS)
    assert order.check(story.history).figures["takeovers"] == 1


def test_an_attempt_that_comes_back_after_its_hand_over_has_expired_is_found() -> None:
    story, turn = handed_over()
    story.wait(0.6)
    turn.ask()
    story.look()
    finds(story, rules.STAYS_OVER, turn.attempt)


# Updates and operations.


def updated(key: str = "fenced:1") -> Story:
    story = Story()
    for value in ("x", "y", "z"):
        turn = story.take(key, f"a/{value}")
        turn.update(value)
        turn.release()
    return story


@pytest.mark.parametrize("key", ["fenced:1", "raised:1"])
def test_an_acknowledged_update_that_is_lost_is_found(key: str) -> None:
    story = updated(key)
    holds(story, rules.UPDATES_THERE, rules.UPDATES_IN_ORDER, rules.UPDATES_KNOWN)
    story.history.resources[key].remove("y")
    finds(story, rules.UPDATES_THERE, "y", "a/y")


def test_updates_without_a_fence_that_are_lost_are_only_counted() -> None:
    story = updated("bare:1")
    story.history.resources["bare:1"].remove("y")
    holds(story)
    figures = order.check(story.history).figures
    assert (figures["bare_acknowledged"], figures["bare_lost"]) == (3, 1)


def test_updates_in_another_order_than_their_tokens_are_found() -> None:
    story = updated()
    story.history.resources["fenced:1"] = ["x", "z", "y"]
    tokens = {call.value: call.token for call in story.history.calls if call.kind == "update"}
    for place, call in enumerate(story.history.calls):  # as if all had been made at once
        story.history.calls[place] = replace(call, returned=story.boot) if call.kind == "update" else call
    finds(story, rules.UPDATES_IN_ORDER, tokens["y"], tokens["z"])


def test_updates_of_one_lease_in_another_order_than_they_were_made_are_found() -> None:
    story = Story()
    turn = story.take("fenced:1", "a/1")
    for value in ("x", "y"):
        turn.update(value)
        story.wait(0.1)
    holds(story, rules.UPDATES_IN_ORDER)
    story.history.resources["fenced:1"] = ["y", "x"]
    finds(story, rules.UPDATES_IN_ORDER, "x was acknowledged", "behind y")


@pytest.mark.parametrize("done", [True, False])
def test_an_update_without_an_answer_may_be_there_or_not(done: bool) -> None:
    story = Story()
    story.take("fenced:1", "a/1").update("x", "unknown", done=done)
    holds(story, rules.RESOLVED)
    assert order.check(story.history).figures["unknown applied"] == done


def test_a_refused_update_that_is_there_is_found() -> None:
    story = Story()
    story.take("fenced:1", "a/1").update("x", "refused")
    finds(story, rules.UPDATES_KNOWN, "x of a/1", "refused")


def test_a_value_that_is_there_twice_or_that_nobody_added_is_found() -> None:
    story = updated()
    story.history.resources["fenced:1"].append("z")
    finds(story, rules.UPDATES_KNOWN, "z is there 2 times")
    story = updated()
    story.history.resources["fenced:1"].append("w")
    finds(story, rules.UPDATES_KNOWN, "w is there, and nobody")


def operated() -> Story:
    """Return a story of one who does it, and one who is told."""
    story = Story()
    turn = story.take("operation:1", "a/1", terms={"operation": True})
    turn.release()
    story.tables.outcome("operation:1", turn.token, "a/1")
    story.history.calls.clear()
    for owner in ("a/1", "b/1"):
        number = story.call("operate", "operation:1", owner, value="a/1")
        story.wait(0.01)
        story.returns(number, "ok")
    story.history.trusts.clear()
    return story


def test_a_result_that_nobody_reported_is_found() -> None:
    story = operated()
    holds(story, rules.REPORTED, rules.ONE_SUCCESS)
    change(story.history.calls, lambda call: call.owner == "b/1", value="c/9")
    finds(story, rules.REPORTED, "c/9", "b/1")


def test_a_result_of_one_that_was_refused_is_found() -> None:
    story = operated()
    change(story.history.calls, lambda call: call.owner == "a/1", outcome="refused")
    finds(story, rules.REPORTED, "a/1", "b/1")


def test_a_result_at_the_store_that_is_not_the_doers_is_found() -> None:
    story = operated()
    change(story.history.audit, lambda row: row.what == "outcome", terms='"b/1"')
    finds(story, rules.REPORTED, "b/1", "a/1")


def test_a_second_success_under_one_token_is_found() -> None:
    story = operated()
    token = story.history.audit[-1].token
    story.history.audit.append(replace(story.history.audit[-1], id=99))
    finds(story, rules.ONE_SUCCESS, token, "twice")


def test_a_success_of_one_whose_lease_had_run_out_is_found() -> None:
    story = operated()
    drop(story.history.asks, lambda ask: ask.kind == "Release")
    drop(story.history.audit, lambda row: row.what == "unhold")
    change(story.history.audit, lambda row: not row.owner and row.what == "lock", holds=1, owner="a/1")
    finds(story, rules.ONE_SUCCESS, "a/1", "never gave a lease back")
