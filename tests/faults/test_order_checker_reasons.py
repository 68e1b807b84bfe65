"""The checker of the order of grants: who is refused is refused for a reason. See `test_order_checker`."""

from __future__ import annotations

from typing import Any

import pytest

from proof.checkers.order import rules
from proof.checkers.order.plants import KEY, ONE, READER, TWO, change, finds, holds
from proof.checkers.order.story import Story
from proof.histories.records import Injected


def refuse(story: Story, key: str, owner: str, answer: str, *, took: float = 0.0, **fields: Any) -> None:
    """Have a store tell somebody to wait or to go away, whatever it has."""
    attempt = f"refused-{len(story.history.asks)}"
    number = story.call("try", key, owner, **{"ttl": 1.0, **fields})
    with_answer = story.ask("Acquire", key, attempt, owner=owner, ttl=1.0, patience=1.5)
    story.wait(took)
    with_answer(answer)
    story.returns(number, "refused", error="LockTimeout")


@pytest.mark.parametrize("answer", ["Busy", "Queued"])
@pytest.mark.parametrize("key", [KEY, "shared:1", "permits:1", "operation:1", "fenced:1"])
def test_who_is_refused_what_is_free_is_found(key: str, answer: str) -> None:
    story = Story()
    story.take(key, "a/1").release()
    story.wait(0.05)
    refuse(story, key, "b/1", answer)
    finds(story, rules.REASON, "of b/1", answer)


def test_who_is_refused_what_another_has_is_refused_for_a_reason() -> None:
    story = Story()
    holder = story.take(KEY, "a/1")
    refuse(story, KEY, "b/1", "Busy")
    holder.release()
    holds(story, rules.REASON)


def test_who_is_refused_what_it_has_itself_is_found() -> None:
    story = Story()
    holder = story.take(KEY, "a/1")
    refuse(story, KEY, "a/1", "Busy")
    holder.release()
    finds(story, rules.REASON, "of a/1")


def test_a_lease_that_has_run_out_is_no_reason() -> None:
    story = Story()
    story.take(KEY, "a/1", ttl=0.6).walk_away()
    story.wait(0.7)
    refuse(story, KEY, "b/1", "Busy")
    finds(story, rules.REASON, "of b/1")


@pytest.mark.parametrize(("mode", "is_right"), [("shared", False), ("exclusive", True)])
def test_readers_are_no_reason_for_another_reader(mode: str, is_right: bool) -> None:
    story = Story()
    readers = [story.take("shared:1", f"{name}/1", terms=READER) for name in "ab"]
    refuse(story, "shared:1", "c/1", "Busy", mode=mode)
    for reader in readers:
        reader.release()
    holds(story, rules.REASON) if is_right else finds(story, rules.REASON, "of c/1")


@pytest.mark.parametrize(("take", "is_right"), [(1, False), (2, True)])
def test_permits_that_are_left_are_not_refused(take: int, is_right: bool) -> None:
    story = Story()
    two = story.take("permits:1", "a/1", terms=TWO)
    refuse(story, "permits:1", "b/1", "Busy", take=take)
    two.release()
    holds(story, rules.REASON) if is_right else finds(story, rules.REASON, "of b/1")


def test_permits_that_were_never_taken_at_once_are_no_reason() -> None:
    """One ends before the next begins, both while the question is under way."""
    story = Story()
    first = story.take("permits:1", "a/1", terms=TWO)
    number = story.call("try", "permits:1", "c/1", ttl=1.0)
    with_answer = story.ask("Acquire", "permits:1", "refused", owner="c/1", ttl=1.0, patience=1.5)
    first.release()
    story.take("permits:1", "b/1", terms=TWO).release()
    with_answer("Busy")
    story.returns(number, "refused", error="LockTimeout")
    story.take("permits:1", "d/1", terms=ONE).release()
    finds(story, rules.REASON, "of c/1")


def test_a_live_ticket_is_a_reason_for_those_behind_it_only() -> None:
    story = Story()
    writers = story.take("shared:1", "a/1", terms=READER)
    waiting = story.take("shared:1", "b/1")  # wants it exclusively
    refuse(story, "shared:1", "c/1", "Busy", mode="shared")
    waiting.withdraw()
    writers.release()
    holds(story, rules.REASON)


def test_a_row_that_is_locked_is_a_reason_that_leaves_no_row() -> None:
    story = Story()
    refuse(story, KEY, "b/1", "Busy", took=0.6)
    story.take(KEY, "a/1").release()
    holds(story)
    story = Story()
    turn = story.take("fenced:1", "a/1")
    began = story.boot
    turn.release()
    story.wait(0.05)
    refuse(story, "fenced:1", "b/1", "Busy")
    number = story.call("update", "fenced:1", "a/1", value="x")
    change(story.history.calls, lambda call: call.kind == "update", called=began)
    story.returns(number, "refused", error="LeaseLost")
    holds(story)


def test_what_a_crash_undoes_was_a_reason() -> None:
    story = Story("mariadb")
    story.take(KEY, "a/1").release()
    story.wait(0.05)
    refuse(story, KEY, "b/1", "Busy")
    story.history.faults.append(Injected("kill database", "database", story.boot + 0.1, story.boot + 1.0))
    holds(story)
    change(story.history.faults, lambda _: True, began=story.boot + 2.0, ended=story.boot + 3.0)
    finds(story, rules.REASON, "of b/1")


def test_a_release_counts_from_when_it_was_answered() -> None:
    """Others see it when it is committed, which is after its row was written."""
    story = Story()
    holder = story.take(KEY, "a/1")
    holder.release()
    asked = story.boot - 0.0005  # between what the trigger wrote and the answer
    refuse(story, KEY, "b/1", "Busy")
    change(story.history.asks, lambda ask: ask.owner == "b/1", called=asked)
    change(story.history.calls, lambda call: call.owner == "b/1", called=asked)
    holds(story, rules.REASON)
