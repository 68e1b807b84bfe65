"""Semaphores: so many at once, each with a lease of its own."""

from __future__ import annotations

from holdfast.core.requests import Broken, Busy, Granted, NotHeld, Queued, Refused, Released, Resized, Signal
from holdfast.stores.base import micros
from holdfast.testing.conformance.asker import SHARED, Asker, permits


class Semaphores:
    """No more permits are taken than there are (P2), and nobody is passed for wanting more (P7)."""

    def test_the_next_is_not_woken_for_a_permit_that_was_passed_on_a_moment_ago(self, ask: Asker) -> None:
        """R19: it ends with a claim window, and the heartbeat of who is next comes well before that."""
        tokens = [ask.take(f"p-{n}", now=100.0, terms=permits(3)).token for n in range(3)]
        for name in ("p-3", "p-4", "p-5", "p-6"):
            ask.queue(name, now=101.0, terms=permits(3), claim=5.0)
        ask.release("p-0", tokens[0], now=102.0)
        ask.release("p-1", tokens[1], now=102.5)
        assert ask.signals() == [("granted", "p-3"), ("granted", "p-4")]
        ask.release("p-2", tokens[2], now=102.501)  # p-3's permit ends in less than nine tenths of a window
        assert set(ask.full_signals()) == {
            Signal("granted", "nightly", "p-5"),
            Signal("head", "nightly", "p-6", expires_in=4.499),
        }

    def test_as_many_hold_it_as_there_are_permits(self, ask: Asker) -> None:
        """P1, P2."""
        tokens = [ask.take(f"p-{n}", now=100.0, terms=permits(3)).token for n in range(3)]
        assert tokens == [micros(100.0) + n for n in range(3)]
        assert isinstance(ask.acquire("p-3", now=101.0, terms=permits(3)), Busy)
        assert ask.queue("p-3", now=101.0, terms=permits(3)).position == 1
        view = ask.look(now=101.0)
        assert (view.state, view.mode, view.permits, view.holds) == ("held", "permits", 3, 3)

    def test_a_permit_that_is_given_back_goes_to_the_head(self, ask: Asker) -> None:
        first = ask.take("p-1", now=100.0, terms=permits(2)).token
        ask.take("p-2", now=100.0, terms=permits(2))
        ask.queue("p-3", now=101.0, terms=permits(2))
        ask.queue("p-4", now=101.0, terms=permits(2))
        assert ask.release("p-1", first, now=102.0) == Released(0, next="p-3")
        assert [told for told in ask.signals() if told[0] == "granted"] == [("granted", "p-3")]
        assert ask.take("p-3", now=103.0, terms=permits(2)).token == micros(102.0)
        assert ask.look(now=103.0).waiting == 1

    def test_a_weight_is_how_many_are_taken(self, ask: Asker) -> None:
        ask.take("p-1", now=100.0, terms=permits(4, take=3))
        assert isinstance(ask.acquire("p-2", now=100.0, terms=permits(4, take=2)), Busy)
        assert isinstance(ask.acquire("p-3", now=100.0, terms=permits(4)), Granted)
        assert [holder.take for holder in ask.look(now=100.0).holders] == [3, 1]

    def test_who_needs_two_is_not_passed_by_who_needs_one(self, ask: Asker) -> None:
        """P7."""
        first = ask.take("p-1", now=100.0, terms=permits(2)).token
        second = ask.take("p-2", now=100.0, terms=permits(2)).token
        ask.queue("big", now=101.0, terms=permits(2, take=2))
        ask.queue("small", now=101.0, terms=permits(2))
        assert ask.release("p-1", first, now=102.0) == Released(0)
        assert isinstance(ask.acquire("late", now=102.0, terms=permits(2)), Busy)
        assert isinstance(ask.acquire("small", now=102.0, terms=permits(2), wait=True), Queued)
        assert ask.release("p-2", second, now=103.0) == Released(0, next="big")
        assert [told for told in ask.signals() if told[0] == "granted"] == [("granted", "big")]

    def test_one_release_may_serve_several(self, ask: Asker) -> None:
        token = ask.take("big", now=100.0, terms=permits(3, take=3)).token
        for n in range(4):
            ask.queue(f"p-{n}", now=101.0, terms=permits(3))
        assert ask.release("big", token, now=102.0) == Released(0, next="p-0")
        granted = [attempt for kind, attempt in ask.signals() if kind == "granted"]
        assert granted == ["p-0", "p-1", "p-2"]
        view = ask.look(now=102.0)
        assert [holder.claimed for holder in view.holders] == [False] * 3
        assert view.waiting == 1

    def test_a_big_waiter_that_leaves_lets_in_those_behind_it(self, ask: Asker) -> None:
        """P8."""
        ask.take("p-1", now=100.0, terms=permits(3))
        ask.queue("big", now=101.0, terms=permits(3, take=3))
        ask.queue("p-2", now=101.0, terms=permits(3))
        ask.queue("p-3", now=101.0, terms=permits(3))
        ask.withdraw("big", now=102.0)
        assert ask.signals() == [("granted", "p-2"), ("granted", "p-3")]

    def test_permits_are_not_reentrant(self, ask: Asker) -> None:
        """Each grant is a lease of its own."""
        first = ask.take("p-1", now=100.0, owner="ann", terms=permits(2))
        second = ask.take("p-2", now=100.0, owner="ann", terms=permits(2))
        assert second.token > first.token
        assert (first.holds, second.holds) == (1, 1)
        assert isinstance(ask.acquire("p-3", now=100.0, owner="ann", terms=permits(2)), Busy)
        assert ask.release("p-1", first.token, now=101.0) == Released(0)
        assert ask.renew("p-2", second.token, now=101.0).outcome == "renewed"

    def test_asking_again_takes_no_second_permit(self, ask: Asker) -> None:
        """P6."""
        token = ask.take("p-1", now=100.0, terms=permits(2)).token
        assert ask.acquire("p-1", now=101.0, terms=permits(2)) == Granted(token, 10.0)
        assert isinstance(ask.acquire("p-2", now=101.0, terms=permits(2)), Granted)

    def test_whoever_believes_another_number_is_told_the_right_one(self, ask: Asker) -> None:
        ask.take("p-1", now=100.0, terms=permits(4))
        for wait in (False, True):
            assert ask.acquire("p-2", now=101.0, terms=permits(5), wait=wait) == Refused("capacity", 4)
        view = ask.look(now=101.0)
        assert (view.holds, view.waiting, view.permits) == (1, 0, 4)

    def test_whoever_says_no_number_takes_the_one_there_is(self, ask: Asker) -> None:
        ask.take("p-1", now=100.0, terms=permits(2))
        assert isinstance(ask.acquire("p-2", now=100.0, terms=permits(0)), Granted)
        assert isinstance(ask.acquire("p-3", now=100.0, terms=permits(0)), Busy)

    def test_where_nobody_has_said_a_number_one_must_be_said(self, ask: Asker) -> None:
        assert ask.acquire("p-1", now=100.0, terms=permits(0)) == Refused("capacity", 0)
        token = ask.take("a-1", now=101.0).token
        assert ask.acquire("p-1", now=101.0, terms=permits(0), wait=True) == Refused("capacity", 0)
        ask.release("a-1", token, now=102.0)
        assert ask.acquire("p-1", now=102.0, terms=permits(0)) == Refused("capacity", 0)

    def test_nobody_can_take_more_than_there_are(self, ask: Asker) -> None:
        assert ask.acquire("p-1", now=100.0, terms=permits(2, take=3)) == Refused("take", 2)
        ask.take("p-2", now=100.0, terms=permits(2))
        assert ask.acquire("p-1", now=100.0, terms=permits(0, take=3), wait=True) == Refused("take", 2)
        assert ask.look(now=100.0).waiting == 0

    def test_the_number_is_kept_while_nobody_has_any(self, ask: Asker) -> None:
        """It goes with the row."""
        token = ask.take("p-1", now=100.0, terms=permits(4)).token
        ask.release("p-1", token, now=101.0)
        assert ask.look(now=102.0).permits == 4
        assert ask.acquire("p-2", now=102.0, terms=permits(3)) == Refused("capacity", 4)
        assert ask.sweep(now=4000.0, idle=3600.0).locks == 1
        assert isinstance(ask.acquire("p-2", now=4001.0, terms=permits(3)), Granted)

    def test_a_dead_holders_permit_comes_back_at_its_own_end(self, ask: Asker) -> None:
        """P8: whoever waits is told the first end, not the last."""
        ask.take("dead", now=100.0, terms=permits(2), ttl=5.0)
        ask.take("p-2", now=100.0, terms=permits(2), ttl=60.0)
        answer = ask.queue("p-3", now=101.0, terms=permits(2))
        assert (answer.position, answer.expires_in) == (1, 4.0)
        assert ask.refresh("p-3", now=102.0).expires_in == 3.0
        assert ask.refresh("p-3", now=104.999999).outcome == "waiting"
        assert ask.refresh("p-3", now=105.0).outcome == "handed"

    def test_whoever_does_not_wait_is_told_the_first_end_too(self, ask: Asker) -> None:
        ask.take("p-1", now=100.0, terms=permits(2), ttl=60.0)
        ask.take("p-2", now=100.0, terms=permits(2), ttl=5.0)
        answer = ask.acquire("p-3", now=101.0, terms=permits(2))
        assert isinstance(answer, Busy)
        assert (answer.holder.owner, answer.expires_in) == ("p-1", 4.0)

    def test_an_operator_breaks_one_lease_by_its_token(self, ask: Asker) -> None:
        ask.take("p-1", now=100.0, terms=permits(3))
        token = ask.take("p-2", now=100.0, terms=permits(3)).token
        ask.take("p-3", now=100.0, terms=permits(3))
        ask.queue("p-4", now=101.0, terms=permits(3))
        answer = ask.break_(now=102.0, token=token)
        assert isinstance(answer, Broken)
        assert (answer.holder.owner, answer.holder.token, answer.next) == ("p-2", token, "p-4")
        assert {("lost", "p-2"), ("granted", "p-4")} <= set(ask.signals())
        assert [holder.owner for holder in ask.look(now=102.0).holders] == ["p-1", "p-3", "p-4"]
        assert ask.break_(now=102.0, token=token) == NotHeld("taken over")
        assert ask.renew("p-2", token, now=103.0).by == "olga"

    def test_without_a_token_all_are_broken(self, ask: Asker) -> None:
        tokens = [ask.take(f"p-{n}", now=100.0, terms=permits(2)).token for n in range(2)]
        assert isinstance(ask.break_(now=101.0), Broken)
        assert ask.look(now=101.0).state == "free"
        assert ask.signals() == [("lost", "p-0"), ("lost", "p-1")]
        assert [ask.renew(f"p-{n}", token, now=102.0).why for n, token in enumerate(tokens)] == ["broken"] * 2

    def test_who_wants_it_alone_waits_for_all_permits(self, ask: Asker) -> None:
        """One queue for all terms."""
        first = ask.take("p-1", now=100.0, terms=permits(2), ttl=5.0).token
        second = ask.take("p-2", now=100.0, terms=permits(2), ttl=10.0).token
        answer = ask.queue("a-1", now=101.0)
        assert answer.expires_in == 9.0
        assert isinstance(ask.acquire("r-1", now=101.0, terms=SHARED), Busy)
        ask.release("p-1", first, now=102.0)
        assert isinstance(ask.acquire("p-3", now=102.0, terms=permits(2)), Busy)
        assert ask.release("p-2", second, now=102.0) == Released(0, next="a-1")
        assert isinstance(ask.acquire("p-3", now=103.0, terms=permits(2)), Busy)


class ResizedSemaphores:
    """An operator says how many permits there are. Nobody who has some loses them."""

    def test_more_permits_are_given_to_who_waits(self, ask: Asker) -> None:
        ask.take("p-1", now=100.0, terms=permits(1))
        for n in (2, 3, 4):
            ask.queue(f"p-{n}", now=101.0, terms=permits(1))
        assert ask.resize(3, now=102.0) == Resized(3, before=1)
        granted = [told for told in ask.signals() if told[0] == "granted"]
        assert granted == [("granted", "p-2"), ("granted", "p-3")]
        view = ask.look(now=102.0)
        assert (view.permits, view.holds, view.waiting) == (3, 3, 1)

    def test_fewer_permits_revoke_nothing_and_admit_nobody_until_there_is_room(self, ask: Asker) -> None:
        tokens = [ask.take(f"p-{n}", now=100.0, terms=permits(3)).token for n in range(3)]
        ask.queue("p-3", now=101.0, terms=permits(3))
        assert ask.resize(1, now=102.0) == Resized(1, before=3)
        assert [ask.renew(f"p-{n}", token, now=103.0).outcome for n, token in enumerate(tokens)] == [
            "renewed"
        ] * 3
        assert ask.release("p-0", tokens[0], now=104.0) == Released(0)
        assert ask.release("p-1", tokens[1], now=104.0) == Released(0)
        assert ask.release("p-2", tokens[2], now=104.0) == Released(0, next="p-3")

    def test_a_ticket_that_takes_more_than_there_are_now_is_refused(self, ask: Asker) -> None:
        """It could never be served, and whoever is behind it would wait with it. It is told to ask again."""
        ask.take("p-1", now=100.0, terms=permits(4))
        ask.take("p-2", now=100.0, terms=permits(4))
        ask.queue("big", now=101.0, terms=permits(4, take=3))
        ask.queue("small", now=101.0, terms=permits(4))
        ask.resize(2, now=102.0)
        assert ask.look(now=102.0).waiting == 1
        assert ("granted", "big") in ask.signals()
        assert ask.refresh("big", now=103.0).outcome == "gone"
        for _ in range(2):
            assert ask.acquire("big", now=103.0, terms=permits(4, take=3), wait=True) == Refused("take", 2)
        assert ask.queue("small", now=103.0, terms=permits(4)).position == 1

    def test_when_it_is_gone_the_next_is_served(self, ask: Asker) -> None:
        """P8."""
        ask.take("p-1", now=100.0, terms=permits(4))
        ask.queue("big", now=101.0, terms=permits(4, take=4))
        ask.queue("small", now=101.0, terms=permits(4))
        ask.resize(2, now=102.0)
        assert {("granted", "small"), ("granted", "big")} <= set(ask.signals())

    def test_a_waiter_that_believed_the_old_number_is_served_all_the_same(self, ask: Asker) -> None:
        """It was right when it came."""
        token = ask.take("p-1", now=100.0, terms=permits(1)).token
        ask.queue("p-2", now=101.0, terms=permits(1))
        ask.queue("p-3", now=101.0, terms=permits(1))
        ask.resize(2, now=102.0)
        assert isinstance(ask.acquire("p-2", now=103.0, terms=permits(1), wait=True), Granted)
        assert isinstance(ask.acquire("p-3", now=103.0, terms=permits(1), wait=True), Queued)
        assert ask.acquire("p-4", now=103.0, terms=permits(1), wait=True) == Refused("capacity", 2)
        assert ask.release("p-1", token, now=104.0) == Released(0, next="p-3")

    def test_a_number_may_be_said_before_anybody_asks(self, ask: Asker) -> None:
        assert ask.resize(2, now=100.0) == Resized(2, before=0)
        assert isinstance(ask.acquire("p-1", now=101.0, terms=permits(0)), Granted)
        assert ask.acquire("p-2", now=101.0, terms=permits(3)) == Refused("capacity", 2)

    def test_a_resize_is_in_the_history(self, ask: Asker) -> None:
        ask.take("p-1", now=100.0, terms=permits(1))
        ask.resize(3, now=102.0, by="olga")
        (event,) = ask.history()
        assert (event.kind, event.by, event.reason, event.at) == ("resized", "olga", "3", 102.0)
