"""Sweep: settle and forget what is over, a bounded piece at a time."""

from __future__ import annotations

from holdfast.core.requests import Health, NotHeld, Probe, Swept
from holdfast.testing.conformance.asker import OTHER_CLIENT, Asker, MakeStore

HOUR = 3600.0


class Sweeps:
    """Nothing that matters is forgotten, least of all a token (P1)."""

    def test_there_may_be_nothing_to_do(self, ask: Asker) -> None:
        assert ask.sweep(now=100.0) == Swept()
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=100.0)
        before = ask.look(now=101.0)
        assert ask.sweep(now=101.0) == Swept()
        assert ask.look(now=101.0) == before

    def test_a_probe_is_seen_by_nobody(self, ask: Asker) -> None:
        for _ in range(2):
            assert ask.store.execute(Probe()) == Health()
        assert ask.page(now=100.0).locks == ()
        assert ask.watch().events == ()
        assert ask.signals() == []

    def test_expired_leases_are_settled(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        assert ask.sweep(now=109.999999).expired == 0
        assert ask.sweep(now=110.0).expired == 1
        assert ask.sweep(now=110.0).expired == 0
        assert ask.look(now=110.0).state == "free"
        assert [event.kind for event in ask.history()] == ["expired"]
        assert ask.renew("a-1", token, now=111.0).why == "expired"

    def test_settling_hands_over(self, ask: Asker) -> None:
        """P8."""
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        ask.queue("c-1", now=101.0, claim=6.0)
        assert ask.sweep(now=110.0).expired == 1
        assert ask.signals() == [("granted", "b-1"), ("head", "c-1")]

    def test_dead_tickets_are_removed_wherever_they_are(self, ask: Asker) -> None:
        """Invariant 9: the queue that is left is counted right."""
        ask.take("a-1", now=100.0, ttl=60.0)
        ask.queue("dead-1", now=100.0, patience=5.0)
        ask.queue("b-1", now=100.0, claim=62.0)
        ask.queue("dead-2", now=100.0, patience=5.0)
        ask.queue("c-1", now=100.0)
        ask.queue("dead-3", now=100.0, patience=5.0)
        assert ask.sweep(now=105.0).tickets == 3
        view = ask.look(now=105.0)
        assert view.waiting == 2
        assert [waiter.owner for waiter in view.waiters] == ["b-1", "c-1"]
        assert ask.signals() == [("head", "b-1")]
        assert ask.queue("d-1", now=105.0).position == 3

    def test_removing_dead_tickets_behind_the_head_tells_nobody(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, ttl=60.0)
        ask.queue("b-1", now=100.0)
        ask.queue("dead-1", now=100.0, patience=5.0)
        assert ask.sweep(now=105.0).tickets == 1
        assert ask.signals() == []

    def test_ended_attempts_are_forgotten_when_their_time_is_over(self, ask: Asker) -> None:
        ask.withdraw("a-1", now=100.0)
        assert ask.sweep(now=159.999999).ended == 0
        assert ask.acquire("a-1", now=159.999999) == NotHeld("already")
        assert ask.sweep(now=160.0).ended == 1

    def test_locks_that_were_free_for_an_hour_are_forgotten(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.release("a-1", token, now=200.0)
        assert ask.sweep(now=200.0 + HOUR - 0.000001).locks == 0
        assert ask.sweep(now=200.0 + HOUR).locks == 1
        assert ask.inspect(now=200.0 + HOUR) is None
        assert ask.page(now=200.0 + HOUR).locks == ()

    def test_a_lock_is_idle_from_when_its_end_was_found(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        assert ask.sweep(now=10_000.0).locks == 0
        assert ask.sweep(now=10_000.0 + HOUR).locks == 1

    def test_locks_in_use_are_kept(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, ttl=10 * HOUR)
        assert ask.sweep(now=100.0 + 9 * HOUR, idle=0.0).locks == 0
        ask.queue("b-1", now=101.0, patience=99 * HOUR, claim=99 * HOUR)
        assert ask.sweep(now=100.0 + 11 * HOUR, idle=0.0).locks == 0
        assert ask.look(now=100.0 + 11 * HOUR).state == "held"

    def test_tokens_rise_through_a_sweep(self, ask: Asker) -> None:
        """P1."""
        first = ask.take("a-1", now=100.0).token
        ask.release("a-1", first, now=101.0)
        assert ask.sweep(now=101.0, idle=0.0).locks == 1
        assert ask.take("b-1", now=101.0).token > first

    def test_tokens_rise_through_a_sweep_even_if_time_went_back(self, ask: Asker) -> None:
        """P1: the floor is at least every token that was ever forgotten."""
        first = ask.take("a-1", now=1000.0).token
        ask.release("a-1", first, now=1001.0)
        assert ask.sweep(now=1001.0, idle=0.0).locks == 1
        assert ask.take("b-1", now=50.0).token == first + 1

    def test_the_floor_holds_for_other_clients_too(self, make_store: MakeStore) -> None:
        """P1: also for one that has never used the key."""
        mine, other = Asker(make_store()), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        first = mine.take("a-1", now=1000.0).token
        mine.release("a-1", first, now=1001.0)
        assert mine.sweep(now=1001.0, idle=0.0).locks == 1
        assert other.take("b-1", now=50.0).token == first + 1

    def test_the_floor_is_never_lowered(self, ask: Asker) -> None:
        """P1: forgetting a low token after a high one does not forget the high one."""
        low = ask.take("a-1", now=500.0, key="low", ttl=HOUR).token
        high = ask.take("a-1", now=1000.0, key="high").token
        ask.release("a-1", high, now=1000.0, key="high")
        assert ask.sweep(now=1000.0, idle=0.0).locks == 1
        ask.release("a-1", low, now=1001.0, key="low")
        assert ask.sweep(now=1001.0, idle=0.0).locks == 1
        assert ask.take("b-1", now=50.0, key="high").token > high
        assert ask.take("b-1", now=50.0, key="low").token > low

    def test_the_floor_holds_for_the_first_waiters_of_a_key_too(self, ask: Asker) -> None:
        """P1, by way of a hand-over."""
        first = ask.take("a-1", now=1000.0).token
        ask.release("a-1", first, now=1001.0)
        ask.sweep(now=1001.0, idle=0.0)
        second = ask.take("b-1", now=50.0, wait=True).token
        ask.queue("c-1", now=51.0)
        ask.release("b-1", second, now=52.0)
        assert ask.take("c-1", now=53.0).token == second + 1 == first + 2

    def test_a_swept_key_starts_with_an_empty_queue(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=100.0, patience=1.0)
        ask.release("a-1", token, now=105.0)
        ask.sweep(now=105.0, idle=0.0)
        ask.take("c-1", now=106.0)
        assert ask.queue("b-1", now=107.0).position == 1

    def test_at_most_so_many_expired_leases_at_a_time(self, ask: Asker) -> None:
        """R4: a sweep is short, however much there is to do."""
        for number in range(5):
            ask.take("a-1", now=100.0, key=f"k{number}")
        assert [ask.sweep(now=110.0, limit=2).expired for _ in range(4)] == [2, 2, 1, 0]

    def test_at_most_so_many_ended_attempts_at_a_time(self, ask: Asker) -> None:
        for number in range(5):
            ask.withdraw(f"a-{number}", now=100.0)
        assert [ask.sweep(now=160.0, limit=2).ended for _ in range(4)] == [2, 2, 1, 0]

    def test_at_most_so_many_events_at_a_time(self, ask: Asker) -> None:
        for number in range(5):
            ask.take("a-1", now=100.0, key=f"k{number}")
        ask.sweep(now=110.0)
        swept = [ask.sweep(now=500.0, limit=2, keep_history=10.0).history for _ in range(4)]
        assert swept == [2, 2, 1, 0]

    def test_the_walk_goes_on_where_it_stopped(self, ask: Asker) -> None:
        """R4: at most *limit* keys are visited at a time, in their order."""
        for number in range(5):
            token = ask.take("a-1", now=100.0, key=f"k{number}").token
            ask.release("a-1", token, now=101.0, key=f"k{number}")
        first = ask.sweep(now=101.0, idle=0.0, limit=2)
        assert (first.locks, first.after) == (2, "k1")
        second = ask.sweep(now=101.0, idle=0.0, limit=2, after="k1")
        assert (second.locks, second.after) == (2, "k3")
        third = ask.sweep(now=101.0, idle=0.0, limit=2, after="k3")
        assert (third.locks, third.after) == (1, None)

    def test_the_walk_passes_by_what_it_cannot_remove(self, ask: Asker) -> None:
        """Else the first locks that are held would keep all others from being swept."""
        for number in range(4):
            ask.take("a-1", now=100.0, key=f"held{number}", ttl=9 * HOUR)
        token = ask.take("a-1", now=100.0, key="idle").token
        ask.release("a-1", token, now=101.0, key="idle")
        after: str | None = ""
        locks = rounds = 0
        while after is not None and rounds < 10:
            swept = ask.sweep(now=101.0, idle=0.0, limit=2, after=after)
            locks, after, rounds = locks + swept.locks, swept.after, rounds + 1
        assert (locks, rounds) == (1, 3)

    def test_a_walk_that_just_fits_is_at_its_end(self, ask: Asker) -> None:
        for number in range(2):
            ask.take("a-1", now=100.0, key=f"k{number}")
        assert ask.sweep(now=101.0, limit=2).after is None

    def test_it_goes_on_while_there_is_more_that_is_over_however_few_keys_there_are(self, ask: Asker) -> None:
        """Else a key whose attempts end all the time would be remembered more and more of."""
        for number in range(5):
            ask.withdraw(f"a-{number}", now=100.0)
        ended = rounds = 0
        after: str | None = ""
        while after is not None and rounds < 10:
            swept = ask.sweep(now=1000.0, limit=2, after=after)
            ended, after, rounds = ended + swept.ended, swept.after, rounds + 1
        assert (ended, rounds) == (5, 3)
