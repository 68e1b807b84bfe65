"""The queue: tickets, their order, and how they are kept alive."""

from __future__ import annotations

from holdfast.core.requests import Busy, Holder, Queued, RefreshTicket, TicketAnswer
from holdfast.testing.conformance.asker import CLIENT, Asker


class Queue:
    """First come, first served, as long as one gives signs of life."""

    def test_whoever_waits_gets_a_ticket(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann").token
        holder = Holder("ann", CLIENT.host, CLIENT.pid, token, held_for=3.0)
        assert ask.acquire("b-1", now=103.0, wait=True) == Queued(1, holder, expires_in=7.0, at=103.0)
        assert ask.look(now=103.0).waiting == 1

    def test_positions_are_in_the_order_of_arrival(self, ask: Asker) -> None:
        """P7."""
        ask.take("a-1", now=100.0)
        assert [ask.queue(name, now=101.0).position for name in ("c-1", "b-1", "d-1")] == [1, 2, 3]

    def test_asking_again_keeps_the_place(self, ask: Asker) -> None:
        """P6."""
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        ask.queue("c-1", now=101.0)
        assert ask.queue("b-1", now=102.0).position == 1
        assert ask.queue("c-1", now=102.0).position == 2
        assert ask.look(now=102.0).waiting == 2

    def test_asking_without_waiting_does_not_touch_the_ticket(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        assert isinstance(ask.acquire("b-1", now=102.0, wait=False), Busy)
        assert ask.look(now=102.0).waiting == 1

    def test_an_owner_may_wait_twice(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        assert ask.queue("b-1", now=101.0, owner="bob").position == 1
        assert ask.queue("b-2", now=101.0, owner="bob").position == 2

    def test_asking_again_keeps_the_ticket_alive(self, ask: Asker) -> None:
        """A ticket ends at `max(end, now + patience)`."""
        token = ask.take("a-1", now=100.0, ttl=60.0).token
        ask.queue("b-1", now=100.0, patience=10.0)
        ask.queue("b-1", now=105.0, patience=10.0)
        ask.queue("b-1", now=106.0, patience=1.0)
        assert ask.refresh("b-1", now=114.999999, patience=0.0).outcome == "waiting"
        ask.release("a-1", token, now=114.999999)
        assert ask.signals() == [("granted", "b-1")]

    def test_a_ticket_ends_with_its_patience(self, ask: Asker) -> None:
        """P8: a dead waiter costs nobody more than that."""
        token = ask.take("a-1", now=100.0, ttl=60.0).token
        ask.queue("b-1", now=100.0, patience=10.0)
        ask.release("a-1", token, now=110.0)
        assert ask.signals() == []
        view = ask.look(now=110.0)
        assert (view.state, view.waiting) == ("free", 0)

    def test_refreshing_keeps_a_ticket_alive(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, ttl=60.0).token
        ask.queue("b-1", now=100.0, patience=10.0)
        assert ask.refresh("b-1", now=109.0, patience=10.0) == TicketAnswer("waiting", True, 51.0, 109.0)
        ask.release("a-1", token, now=118.0)
        assert ask.signals() == [("granted", "b-1")]

    def test_refreshing_never_shortens_the_life_of_a_ticket(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, ttl=60.0).token
        ask.queue("b-1", now=100.0, patience=30.0)
        ask.refresh("b-1", now=101.0, patience=1.0)
        ask.release("a-1", token, now=120.0)
        assert ask.signals() == [("granted", "b-1")]

    def test_only_the_head_is_told_that_it_is_head(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        ask.queue("c-1", now=101.0)
        assert ask.refresh("b-1", now=104.0) == TicketAnswer("waiting", True, 6.0, 104.0)
        assert ask.refresh("c-1", now=104.0) == TicketAnswer("waiting", False, 6.0, 104.0)

    def test_a_ticket_that_was_handed_the_lock_is_told_so(self, ask: Asker) -> None:
        """Signals can be lost: the heartbeat says what they would have said."""
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        ask.release("a-1", token, now=102.0)
        assert ask.refresh("b-1", now=103.0) == TicketAnswer("handed")

    def test_refreshing_does_not_claim(self, ask: Asker) -> None:
        """A heartbeat is no proof that anybody still waits for the answer."""
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0, claim=5.0)
        ask.release("a-1", token, now=102.0)
        ask.refresh("b-1", now=106.0)
        assert ask.refresh("b-1", now=107.0).outcome == "gone"

    def test_refreshing_settles_the_key(self, ask: Asker) -> None:
        """P8: nobody else may be asking."""
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        ask.queue("c-1", now=101.0, claim=6.0)
        assert ask.refresh("c-1", now=110.0) == TicketAnswer("waiting", True, 5.0, 110.0)
        assert ask.signals() == [("granted", "b-1"), ("head", "c-1")]
        assert ask.refresh("b-1", now=110.0) == TicketAnswer("handed")

    def test_refreshing_at_the_end_of_the_lease_can_hand_over_to_oneself(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        assert ask.refresh("b-1", now=110.0) == TicketAnswer("handed")

    def test_a_dead_head_is_gone(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, ttl=60.0)
        ask.queue("b-1", now=100.0, patience=10.0)
        assert ask.refresh("b-1", now=110.0) == TicketAnswer("gone")
        assert ask.queue("b-1", now=110.0).position == 1

    def test_a_ticket_nobody_ever_had_is_gone(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, ttl=60.0)
        assert ask.refresh("b-1", now=101.0) == TicketAnswer("gone")
        assert ask.refresh("b-1", now=101.0, key="never") == TicketAnswer("gone")
        assert ask.look(now=101.0).waiting == 0

    def test_every_ticket_of_a_batch_has_its_own_answer_in_its_order(self, ask: Asker) -> None:
        for key in ("k-1", "k-2", "k-3"):
            ask.take("a-1", now=100.0, key=key, ttl=20.0)
            ask.queue("b-1", now=100.0, key=key)
            ask.queue("c-1", now=100.0, key=key)
        ask.break_(now=101.0, key="k-2")
        batch = [
            RefreshTicket(key, attempt, 15.0)
            for attempt in ("c-1", "b-1", "x-1")
            for key in ("k-3", "k-2", "k-1")
        ]
        assert ask.refresh_all(batch, now=102.0) == (
            TicketAnswer("waiting", False, 18.0, 102.0),
            TicketAnswer("waiting", True, 4.0, 102.0),
            TicketAnswer("waiting", False, 18.0, 102.0),
            TicketAnswer("waiting", True, 18.0, 102.0),
            TicketAnswer("handed"),
            TicketAnswer("waiting", True, 18.0, 102.0),
            TicketAnswer("gone"),
            TicketAnswer("gone"),
            TicketAnswer("gone"),
        )

    def test_a_thousand_waiters_are_one_batch(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        for number in range(1000):
            assert ask.queue(f"w-{number}", now=101.0).position == number + 1
        batch = [RefreshTicket("nightly", f"w-{number}", 15.0) for number in range(1000)]
        answers = ask.refresh_all(batch, now=102.0)
        assert answers[0] == TicketAnswer("waiting", True, 8.0, 102.0)
        assert set(answers[1:]) == {TicketAnswer("waiting", False, 8.0, 102.0)}

    def test_one_who_does_not_wait_never_passes_a_live_ticket(self, ask: Asker) -> None:
        """P7: not even in the moment in which the lock becomes free."""
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        answer = ask.acquire("c-1", now=110.0)
        assert isinstance(answer, Busy)
        assert answer.holder.owner == "b-1"

    def test_one_who_waits_joins_behind_the_winner(self, ask: Asker) -> None:
        """P7."""
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        answer = ask.queue("c-1", now=110.0)
        assert (answer.position, answer.holder.owner, answer.holder.claimed) == (1, "b-1", False)

    def test_dead_tickets_count_until_they_reach_the_head(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, ttl=60.0)
        ask.queue("b-1", now=100.0)
        ask.queue("c-1", now=100.0, patience=1.0)
        ask.queue("d-1", now=100.0)
        assert ask.queue("d-1", now=105.0).position == 3
        ask.withdraw("b-1", now=105.0)
        assert ask.queue("d-1", now=105.0).position == 1

    def test_a_dead_head_makes_room_when_anybody_asks(self, ask: Asker) -> None:
        """P8: somebody has to watch the end of the lease."""
        ask.take("a-1", now=100.0, ttl=60.0)
        ask.queue("b-1", now=100.0, patience=1.0)
        ask.queue("c-1", now=100.0, claim=62.0)
        assert ask.queue("d-1", now=105.0).position == 2
        assert ask.signals() == [("head", "c-1")]

    def test_the_inspection_shows_who_waits_and_for_how_long(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0, owner="bob")
        ask.queue("c-1", now=103.0, owner="cy")
        ask.queue("b-1", now=104.0, owner="bob")
        waiters = ask.look(now=105.0).waiters
        assert [(waiter.owner, waiter.waiting_for) for waiter in waiters] == [("bob", 4.0), ("cy", 2.0)]
        assert {(waiter.host, waiter.pid) for waiter in waiters} == {(CLIENT.host, CLIENT.pid)}
