"""Operations: done once, by one at a time, and everybody who waited is told."""

from __future__ import annotations

import json

from holdfast.core.family import LARGEST_RESULT, Failure, Terms
from holdfast.core.requests import (
    Busy,
    Done,
    Failed,
    Granted,
    NotHeld,
    Queued,
    Refused,
    Released,
    TicketAnswer,
    Withdrawn,
)
from holdfast.testing.conformance.asker import (
    CLIENT,
    OPERATION,
    OTHER_CLIENT,
    Asker,
    MakeStore,
)

RESULT = '{"path":"/models/7b"}'


class Operations:
    """Success: nobody inherits the lock, and whoever waited learns the result."""

    def test_everybody_who_waited_is_told_the_result(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        for name in ("b-1", "c-1", "d-1"):
            ask.queue(name, now=101.0, terms=OPERATION)
        assert ask.succeed("a-1", token, now=102.0, result=RESULT) == Released(0, next=None, told=3)
        for name in ("c-1", "b-1", "d-1"):
            answer = ask.acquire(name, now=103.0, terms=OPERATION, wait=True)
            assert answer == Done(RESULT, token)

    def test_nobody_inherits_what_is_done(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, terms=OPERATION)
        ask.succeed("a-1", token, now=102.0)
        view = ask.look(now=102.0)
        assert (view.state, view.waiting, view.holds) == ("free", 0, 0)
        assert [kind for kind, _ in ask.signals()] == ["over"]

    def test_whoever_asks_twice_is_told_twice(self, ask: Asker) -> None:
        """P6: the first answer may have been lost."""
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, terms=OPERATION)
        ask.succeed("a-1", token, now=102.0, result=RESULT)
        for now in (103.0, 103.0, 200.0, 701.999999):
            answer = ask.acquire("b-1", now=now, terms=OPERATION, wait=True)
            assert answer == Done(RESULT, token)

    def test_an_outcome_is_remembered_for_ten_minutes(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, terms=OPERATION)
        ask.succeed("a-1", token, now=102.0)
        ask.sweep(now=701.999999)
        assert isinstance(ask.acquire("b-1", now=701.999999, terms=OPERATION), Done)
        ask.sweep(now=702.0)
        assert isinstance(ask.acquire("b-1", now=702.0, terms=OPERATION), Granted)

    def test_whoever_comes_later_starts_anew(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, owner="bob", terms=OPERATION)
        ask.succeed("a-1", token, now=102.0, result="1")
        anew = ask.take("b-2", now=103.0, owner="bob", terms=OPERATION)
        assert anew.token > token
        assert anew.failures == ()
        assert ask.acquire("b-1", now=103.0, owner="bob", terms=OPERATION, wait=True) == Done("1", token)

    def test_each_learns_the_outcome_that_it_waited_for(self, ask: Asker) -> None:
        """Invariant 10."""
        first = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, terms=OPERATION)
        ask.succeed("a-1", first, now=102.0, result="1")
        second = ask.take("a-2", now=103.0, terms=OPERATION).token
        ask.queue("c-1", now=104.0, terms=OPERATION)
        ask.succeed("a-2", second, now=105.0, result="2")
        assert ask.acquire("c-1", now=106.0, terms=OPERATION, wait=True) == Done("2", second)
        assert ask.acquire("b-1", now=106.0, terms=OPERATION, wait=True) == Done("1", first)

    def test_a_dead_ticket_is_not_told(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, terms=OPERATION)
        ask.queue("dead-1", now=101.0, terms=OPERATION, patience=2.0)
        answer = ask.succeed("a-1", token, now=103.0)
        assert answer == Released(0, told=1)
        assert isinstance(ask.acquire("dead-1", now=104.0, terms=OPERATION), Granted)

    def test_a_ticket_that_was_told_is_gone(self, ask: Asker) -> None:
        """A heartbeat says to ask again, as it does whenever there is no ticket any more."""
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, terms=OPERATION)
        ask.succeed("a-1", token, now=102.0)
        assert ask.refresh("b-1", now=103.0) == TicketAnswer("gone")
        assert isinstance(ask.acquire("b-1", now=103.0, terms=OPERATION, wait=True), Done)

    def test_who_was_told_cannot_withdraw_it(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, terms=OPERATION)
        ask.succeed("a-1", token, now=102.0)
        assert isinstance(ask.withdraw("b-1", now=103.0), NotHeld)

    def test_a_success_is_said_once(self, ask: Asker) -> None:
        """P6: asked twice, it does nothing to the next attempt."""
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.succeed("a-1", token, now=101.0)
        assert ask.succeed("a-1", token, now=101.0) == NotHeld("already")
        ask.take("b-1", now=102.0, terms=OPERATION)
        ask.queue("c-1", now=102.0, terms=OPERATION)
        ask.signals()
        assert isinstance(ask.succeed("a-1", token, now=103.0), NotHeld)
        assert ask.look(now=103.0).waiting == 1
        assert ask.signals() == []

    def test_an_instance_is_told_once_however_many_wait_in_it(self, make_store: MakeStore) -> None:
        store = make_store(CLIENT)
        mine, other = Asker(store, CLIENT), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        token = other.take("a-1", now=100.0, terms=OPERATION).token
        for name in ("b-1", "c-1", "d-1"):
            other.queue(name, now=101.0, terms=OPERATION)
        mine.queue("e-1", now=101.0, terms=OPERATION)
        assert other.succeed("a-1", token, now=102.0) == Released(0, told=4)
        told = other.full_signals()
        assert [(signal.kind, signal.key) for signal in told] == [("over", "nightly")]

    def test_another_client_is_told_too(self, make_store: MakeStore) -> None:
        mine, other = Asker(make_store(CLIENT)), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        token = mine.take("a-1", now=100.0, terms=OPERATION).token
        other.queue("b-1", now=101.0, terms=OPERATION)
        mine.succeed("a-1", token, now=102.0, result=RESULT)
        assert mine.signals() == []
        assert other.acquire("b-1", now=103.0, terms=OPERATION, wait=True) == Done(RESULT, token)

    def test_a_large_result_arrives_whole(self, ask: Asker) -> None:
        result = json.dumps("ü" * ((LARGEST_RESULT - 2) // 2), ensure_ascii=False)
        assert len(result.encode()) == LARGEST_RESULT
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, terms=OPERATION)
        ask.succeed("a-1", token, now=102.0, result=result)
        assert ask.acquire("b-1", now=103.0, terms=OPERATION, wait=True) == Done(result, token)

    def test_two_operations_on_one_resource_have_queues_of_their_own(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, key="pull:x", terms=OPERATION).token
        ask.queue("b-1", now=100.0, key="pull:x", terms=OPERATION)
        ask.take("a-2", now=100.0, key="delete:x", terms=OPERATION)
        ask.queue("b-2", now=100.0, key="delete:x", terms=OPERATION)
        ask.succeed("a-1", token, now=101.0, key="pull:x")
        assert isinstance(ask.acquire("b-1", now=102.0, key="pull:x", terms=OPERATION, wait=True), Done)
        assert isinstance(ask.acquire("b-2", now=102.0, key="delete:x", terms=OPERATION, wait=True), Queued)

    def test_only_the_last_hold_can_say_how_it_ended(self, ask: Asker) -> None:
        """The others are not through with it."""
        token = ask.take("a-1", now=100.0, owner="ann", terms=OPERATION).token
        ask.take("a-2", now=100.0, owner="ann", terms=OPERATION)
        ask.queue("b-1", now=101.0, terms=OPERATION)
        assert ask.succeed("a-2", token, now=102.0) == Refused("holds")
        assert ask.fail("a-1", token, now=102.0) == Refused("holds")
        assert ask.look(now=102.0).holds == 2
        assert ask.release("a-2", token, now=103.0) == Released(1)
        assert "failed" not in {event.kind for event in ask.history()}
        assert ask.succeed("a-1", token, now=104.0) == Released(0, told=1)

    def test_on_a_plain_lock_an_outcome_counts_for_nothing(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        assert ask.succeed("a-1", token, now=102.0) == Released(0, next="b-1")
        assert isinstance(ask.acquire("b-1", now=103.0), Granted)
        token = ask.look(now=103.0).token
        ask.queue("c-1", now=104.0)
        assert ask.fail("b-1", token, now=105.0) == Released(0, next="c-1")
        assert ask.take("c-1", now=106.0).failures == ()
        assert ask.history() == ()

    def test_an_outcome_that_comes_too_late_is_not_accepted(self, ask: Asker) -> None:
        """The doer was paused past its lease; nobody may hear of what it did from the store."""
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, terms=OPERATION)
        assert ask.succeed("a-1", token, now=110.0) in (NotHeld("expired"), NotHeld("taken over"))
        second = ask.take("b-1", now=111.0, terms=OPERATION, wait=True).token
        ask.queue("c-1", now=111.0, terms=OPERATION)
        assert ask.succeed("a-1", token, now=112.0, result="1") == NotHeld("taken over")
        assert isinstance(ask.acquire("c-1", now=112.0, terms=OPERATION, wait=True), Queued)
        assert ask.succeed("b-1", second, now=113.0, result="2") == Released(0, told=1)
        assert ask.acquire("c-1", now=114.0, terms=OPERATION, wait=True) == Done("2", second)

    def test_a_late_outcome_of_a_lease_that_nobody_took_over(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        assert ask.succeed("a-1", token, now=110.0) == NotHeld("expired")
        assert "completed" not in {event.kind for event in ask.history()}

    def test_the_history_of_an_operation_is_kept_as_notable(self, ask: Asker) -> None:
        """It is rare, and others want to watch it."""
        token = ask.take("a-1", now=100.0, owner="ann", terms=OPERATION).token
        ask.queue("b-1", now=101.0, owner="bob", terms=OPERATION)
        ask.fail("a-1", token, now=102.0, error="no space left")
        token = ask.take("b-1", now=103.0, owner="bob", terms=OPERATION).token
        ask.succeed("b-1", token, now=104.0)
        events = [(event.kind, event.owner, event.reason) for event in ask.history()]
        assert ("failed", "ann", "no space left") in events
        assert events[-1][:2] == ("completed", "bob")
        assert {"granted", "queued", "handed_over"} <= {kind for kind, *_ in events}

    def test_an_operation_is_exclusive_and_reentrant_as_any_lock(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann", terms=OPERATION).token
        assert isinstance(ask.acquire("b-1", now=101.0, terms=OPERATION), Busy)
        assert ask.acquire("a-2", now=101.0, owner="ann", terms=OPERATION) == Granted(token, 10.0, holds=2)


class FailedOperations:
    """Failure: the next in line is to do it, and is told what went wrong before."""

    def test_the_next_in_line_is_told_what_went_wrong(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann", terms=OPERATION).token
        ask.queue("b-1", now=101.0, terms=OPERATION)
        ask.queue("c-1", now=101.0, terms=OPERATION)
        assert ask.fail("a-1", token, now=102.0, error="no space left") == Released(0, next="b-1")
        assert [told for told in ask.signals() if told[0] == "granted"] == [("granted", "b-1")]
        failure = Failure("ann", CLIENT.host, CLIENT.pid, token, "no space left")
        second = ask.take("b-1", now=103.0, terms=OPERATION)
        assert second.failures == (failure,)
        ask.fail("b-1", second.token, now=104.0, error="again")
        third = ask.take("c-1", now=105.0, terms=OPERATION)
        assert third.failures == (
            failure,
            Failure("b-1", CLIENT.host, CLIENT.pid, second.token, "again"),
        )

    def test_whoever_asks_twice_is_told_the_failures_twice(self, ask: Asker) -> None:
        """P6: the first answer may have been lost."""
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, terms=OPERATION)
        ask.fail("a-1", token, now=102.0)
        first = ask.acquire("b-1", now=103.0, terms=OPERATION, wait=True)
        assert ask.acquire("b-1", now=103.0, terms=OPERATION, wait=True) == first

    def test_a_release_without_an_outcome_is_a_failure(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, terms=OPERATION)
        assert ask.release("a-1", token, now=102.0) == Released(0, next="b-1")
        assert self._failures(ask, "b-1", now=103.0) == ["a-1"]

    def test_a_doer_that_expires_has_failed(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, terms=OPERATION)
        ask.queue("b-1", now=101.0, terms=OPERATION)
        assert self._failures(ask, "b-1", now=110.0) == ["a-1"]
        assert "failed" in {event.kind for event in ask.history()}

    def test_a_doer_that_is_broken_has_failed(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, terms=OPERATION)
        ask.queue("b-1", now=101.0, terms=OPERATION)
        ask.break_(now=102.0)
        assert self._failures(ask, "b-1", now=103.0) == ["a-1"]

    def test_a_doer_that_withdraws_has_failed(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, terms=OPERATION)
        ask.queue("b-1", now=101.0, terms=OPERATION)
        assert ask.withdraw("a-1", now=102.0) == Withdrawn(next="b-1")
        assert self._failures(ask, "b-1", now=103.0) == ["a-1"]

    def test_who_never_claimed_it_has_not_failed(self, ask: Asker) -> None:
        """It did not begin: nobody knows whether it is there at all."""
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        for name in ("b-1", "c-1", "d-1", "e-1"):
            ask.queue(name, now=101.0, terms=OPERATION, claim=5.0)
        ask.fail("a-1", token, now=102.0)
        assert ask.refresh("c-1", now=107.0).outcome == "handed"  # b-1 did not come
        ask.withdraw("c-1", now=108.0)
        assert ask.refresh("d-1", now=108.0).outcome == "handed"
        ask.break_(now=109.0)
        assert self._failures(ask, "e-1", now=110.0) == ["a-1"]

    def test_a_ticket_that_leaves_has_not_failed(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, terms=OPERATION)
        ask.queue("c-1", now=101.0, terms=OPERATION)
        ask.withdraw("b-1", now=102.0)
        ask.fail("a-1", token, now=103.0)
        assert self._failures(ask, "c-1", now=104.0) == ["a-1"]

    def test_failures_are_forgotten_when_nobody_waits(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("dead-1", now=100.0, terms=OPERATION, patience=1.0)
        ask.fail("a-1", token, now=102.0)
        assert ask.take("b-1", now=103.0, terms=OPERATION).failures == ()

    def test_failures_are_forgotten_with_success(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, terms=OPERATION)
        ask.fail("a-1", token, now=102.0)
        token = ask.take("b-1", now=103.0, terms=OPERATION).token
        ask.succeed("b-1", token, now=104.0)
        assert ask.take("c-1", now=105.0, terms=OPERATION).failures == ()

    def test_after_so_many_failures_everybody_gives_up(self, ask: Asker) -> None:
        twice = Terms(operation=True, max_attempts=2)
        first = ask.take("a-1", now=100.0, terms=twice).token
        for name in ("b-1", "c-1", "d-1"):
            ask.queue(name, now=101.0, terms=twice)
        ask.fail("a-1", first, now=102.0, error="one")
        second = ask.take("b-1", now=103.0, terms=twice).token
        ask.signals()
        answer = ask.fail("b-1", second, now=104.0, error="two")
        assert isinstance(answer, Released)
        assert answer.next is None
        assert {kind for kind, _ in ask.signals()} == {"over"}
        history = (
            Failure("a-1", CLIENT.host, CLIENT.pid, first, "one"),
            Failure("b-1", CLIENT.host, CLIENT.pid, second, "two"),
        )
        for name in ("c-1", "d-1", "c-1"):
            assert ask.acquire(name, now=105.0, terms=twice, wait=True) == Failed(history)
        view = ask.look(now=105.0)
        assert (view.state, view.waiting) == ("free", 0)

    def test_after_giving_up_it_begins_anew(self, ask: Asker) -> None:
        once = Terms(operation=True, max_attempts=1)
        token = ask.take("a-1", now=100.0, terms=once).token
        ask.queue("b-1", now=101.0, terms=once)
        ask.fail("a-1", token, now=102.0)
        anew = ask.take("c-1", now=103.0, terms=once)
        assert anew.failures == ()
        ask.queue("d-1", now=103.0, terms=once)
        assert isinstance(ask.acquire("b-1", now=104.0, terms=once, wait=True), Failed)
        ask.succeed("c-1", anew.token, now=104.0)
        assert isinstance(ask.acquire("d-1", now=105.0, terms=once, wait=True), Done)

    def test_a_doer_that_expires_counts_as_well(self, ask: Asker) -> None:
        """A poison operation kills whoever does it."""
        once = Terms(operation=True, max_attempts=1)
        ask.take("a-1", now=100.0, terms=once)
        ask.queue("b-1", now=101.0, terms=once)
        answer = ask.acquire("b-1", now=110.0, terms=once, wait=True)
        assert isinstance(answer, Failed)
        assert [failure.owner for failure in answer.failures] == ["a-1"]

    def test_without_a_limit_nobody_gives_up(self, ask: Asker) -> None:
        token = ask.take("d-0", now=100.0, terms=OPERATION).token
        for n in range(1, 6):
            ask.queue(f"d-{n}", now=100.0, terms=OPERATION)
        for n in range(5):
            assert ask.fail(f"d-{n}", token, now=101.0 + n) == Released(0, next=f"d-{n + 1}")
            token = ask.take(f"d-{n + 1}", now=101.0 + n, terms=OPERATION).token
        assert self._failures(ask, "d-5", now=107.0) == [f"d-{n}" for n in range(5)]

    @staticmethod
    def _failures(ask: Asker, attempt: str, *, now: float) -> list[str]:
        granted = ask.take(attempt, now=now, terms=OPERATION, wait=True)
        return [failure.owner for failure in granted.failures]
