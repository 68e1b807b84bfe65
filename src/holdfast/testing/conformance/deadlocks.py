"""Deadlocks: found when the circle closes, with one victim, and never where there is none."""

from __future__ import annotations

from holdfast.core.family import PLAIN, Link, Terms
from holdfast.core.requests import Busy, Deadlocked, Granted, Queued, Released
from holdfast.testing.conformance.asker import (
    CLIENT,
    OTHER_CLIENT,
    SHARED,
    Answer,
    Asker,
    MakeStore,
    permits,
)


class Deadlocks:
    """Owners that wait for each other. Attempts are named after their owner and the key."""

    def test_two_who_wait_for_each_other(self, ask: Asker) -> None:
        self._takes(ask, "ann", "k1")
        self._takes(ask, "bob", "k2")
        assert isinstance(self._waits(ask, "ann", "k2", now=101.0), Queued)
        answer = self._waits(ask, "bob", "k1", now=102.0)
        assert answer == Deadlocked((self._link("bob", "k1"), self._link("ann", "k2")))

    def test_three_who_wait_for_each_other(self, ask: Asker) -> None:
        for owner, key in (("ann", "k1"), ("bob", "k2"), ("cy", "k3")):
            self._takes(ask, owner, key)
        assert isinstance(self._waits(ask, "ann", "k2", now=101.0), Queued)
        assert isinstance(self._waits(ask, "bob", "k3", now=102.0), Queued)
        answer = self._waits(ask, "cy", "k1", now=103.0)
        assert answer == Deadlocked(
            (self._link("cy", "k1"), self._link("ann", "k2"), self._link("bob", "k3"))
        )

    def test_the_victim_leaves_the_queue_and_nobody_else_does(self, ask: Asker) -> None:
        """Exactly one: the other goes on waiting, and is served."""
        self._takes(ask, "ann", "k1")
        token = self._takes(ask, "bob", "k2")
        self._waits(ask, "ann", "k2", now=101.0)
        self._waits(ask, "bob", "k1", now=102.0)
        assert ask.look(now=102.0, key="k1").waiting == 0
        assert isinstance(self._waits(ask, "ann", "k2", now=103.0), Queued)
        assert ask.release("bob:k2", token, now=104.0, key="k2") == Released(0, next="ann")

    def test_the_victim_is_told_again_if_it_asks_again(self, ask: Asker) -> None:
        """P6."""
        self._circle(ask)
        first = self._waits(ask, "bob", "k1", now=103.0)
        assert isinstance(first, Deadlocked)
        ask.withdraw("ann:k2", now=104.0, key="k2")  # there is no circle any more
        assert self._waits(ask, "bob", "k1", now=105.0) == first
        assert ask.refresh("bob:k1", now=105.0, key="k1").outcome == "gone"

    def test_who_tries_once_more_closes_the_circle_once_more(self, ask: Asker) -> None:
        """As long as it keeps what the other waits for."""
        self._circle(ask)
        again = ask.acquire("bob-again", now=104.0, key="k1", owner="bob", wait=True)
        assert isinstance(again, Deadlocked)
        assert again.cycle[0] == self._link("bob", "k1")

    def test_the_newest_wait_is_the_victim_whoever_finds_out(self, make_store: MakeStore) -> None:
        """The clock may step between two requests: then it is not the one that asked last."""
        mine, other = Asker(make_store(CLIENT), CLIENT), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        self._takes(mine, "ann", "k1")
        self._takes(other, "bob", "k2")
        assert isinstance(self._waits(mine, "ann", "k2", now=105.0), Queued)
        assert isinstance(self._waits(other, "bob", "k1", now=104.0), Queued)
        expected = Deadlocked(
            (
                Link("ann", "k2", CLIENT.host, CLIENT.pid),
                Link("bob", "k1", OTHER_CLIENT.host, OTHER_CLIENT.pid),
            )
        )
        assert mine.refresh("ann:k2", now=106.0, key="k2").outcome == "gone"
        assert self._waits(mine, "ann", "k2", now=106.0) == expected
        assert isinstance(self._waits(other, "bob", "k1", now=106.0), Queued)

    def test_a_victim_that_did_not_ask_is_told_to(self, ask: Asker) -> None:
        self._takes(ask, "ann", "k1")
        self._takes(ask, "bob", "k2")
        self._waits(ask, "ann", "k2", now=105.0)
        self._waits(ask, "bob", "k1", now=104.0)
        assert ask.signals() == [("granted", "ann:k2")]

    def test_of_waits_at_the_same_time_the_last_by_its_attempt_is_the_newest(self, ask: Asker) -> None:
        self._takes(ask, "bob", "k1")
        self._takes(ask, "ann", "k2")
        assert isinstance(self._waits(ask, "bob", "k2", now=101.0), Queued)
        assert isinstance(self._waits(ask, "ann", "k1", now=101.0), Queued)
        answer = self._waits(ask, "bob", "k2", now=101.0)
        assert answer == Deadlocked((self._link("bob", "k2"), self._link("ann", "k1")))

    def test_a_deadlock_is_in_the_history(self, ask: Asker) -> None:
        self._circle(ask)
        (event,) = ask.history(key="k1")
        assert (event.kind, event.owner, event.at) == ("deadlocked", "bob", 102.0)
        assert ask.history(key="k2") == ()

    def test_nobody_learns_the_attempt_of_another(self, ask: Asker) -> None:
        """P5: an attempt is a secret. Whoever knows it can release what it holds, or leave its queue."""
        self._takes(ask, "ann", "k1")
        self._takes(ask, "bob", "k2")
        ask.acquire("of-ann-alone", now=101.0, key="k2", owner="ann", wait=True, patience=1000.0)
        told = [self._waits(ask, "bob", "k1", now=now) for now in (102.0, 103.0)]
        assert all(isinstance(answer, Deadlocked) for answer in told)
        assert "of-ann-alone" not in repr((told, ask.history(key="k1")))

    def test_who_does_not_wait_closes_no_circle(self, ask: Asker) -> None:
        self._takes(ask, "ann", "k1")
        self._takes(ask, "bob", "k2")
        self._waits(ask, "ann", "k2", now=101.0)
        assert isinstance(ask.acquire("bob:k1", now=102.0, key="k1", owner="bob"), Busy)

    # No alarm.

    def test_waits_that_converge_are_no_circle(self, ask: Asker) -> None:
        self._takes(ask, "ann", "k1")
        for owner, key in (("bob", "k2"), ("cy", "k3"), ("dee", "k4")):
            self._takes(ask, owner, key)
            assert isinstance(self._waits(ask, owner, "k1", now=101.0), Queued)
        assert isinstance(self._waits(ask, "eve", "k2", now=102.0), Queued)

    def test_a_chain_is_no_circle(self, ask: Asker) -> None:
        owners = ["ann", "bob", "cy", "dee", "eve"]
        for number, owner in enumerate(owners):
            self._takes(ask, owner, f"k{number}")
        for number, owner in reversed(list(enumerate(owners))[1:]):
            assert isinstance(self._waits(ask, owner, f"k{number - 1}", now=101.0), Queued)

    def test_entering_again_is_no_circle(self, ask: Asker) -> None:
        self._takes(ask, "ann", "k1")
        self._takes(ask, "ann", "k2")
        self._waits(ask, "bob", "k1", now=101.0)
        self._waits(ask, "bob", "k2", now=101.0)
        for key in ("k1", "k2"):
            answer = ask.acquire(f"ann-again:{key}", now=102.0, key=key, owner="ann", wait=True)
            assert isinstance(answer, Granted)

    def test_a_reader_that_blocks_nobody_is_no_part_of_a_circle(self, ask: Asker) -> None:
        """Bob waits behind the writer, and not for the reader ann; who waits for bob."""
        self._takes(ask, "ann", "k1", terms=SHARED)
        self._takes(ask, "bob", "k2")
        assert isinstance(self._waits(ask, "ann", "k2", now=101.0), Queued)
        answer = ask.acquire("bob:k1", now=102.0, key="k1", owner="bob", terms=SHARED, wait=True)
        assert isinstance(answer, Granted)

    def test_a_hold_that_expired_is_no_part_of_a_circle(self, ask: Asker) -> None:
        """Nobody has asked for k2 since: it is not even settled."""
        self._takes(ask, "ann", "k1")
        self._takes(ask, "bob", "k2", ttl=5.0)
        self._takes(ask, "cy", "k3")
        assert isinstance(self._waits(ask, "bob", "k1", now=101.0), Queued)
        assert isinstance(self._waits(ask, "cy", "k2", now=101.0), Queued)
        assert isinstance(self._waits(ask, "ann", "k3", now=106.0), Queued)

    def test_a_ticket_that_expired_is_no_part_of_a_circle(self, ask: Asker) -> None:
        self._takes(ask, "ann", "k1")
        self._takes(ask, "bob", "k2")
        assert isinstance(self._waits(ask, "bob", "k1", now=101.0, patience=3.0), Queued)
        assert isinstance(self._waits(ask, "ann", "k2", now=104.0), Queued)

    def test_an_owner_that_gave_up_is_no_part_of_a_circle(self, ask: Asker) -> None:
        self._takes(ask, "ann", "k1")
        self._takes(ask, "bob", "k2")
        self._waits(ask, "bob", "k1", now=101.0)
        ask.withdraw("bob:k1", now=102.0, key="k1")
        assert isinstance(self._waits(ask, "ann", "k2", now=103.0), Queued)

    def test_a_semaphore_is_no_part_of_a_circle_while_one_holder_can_go_on(self, ask: Asker) -> None:
        self._takes(ask, "ann", "k1", terms=permits(2))
        self._takes(ask, "cy", "k1", terms=permits(2))
        self._takes(ask, "bob", "k2")
        assert isinstance(self._waits(ask, "bob", "k1", now=101.0, terms=permits(2)), Queued)
        assert isinstance(self._waits(ask, "ann", "k2", now=102.0), Queued)

    def test_an_owner_with_several_waits_goes_on_with_any_of_them(self, ask: Asker) -> None:
        """One of bob's threads waits for ann; another waits for who can go on."""
        self._takes(ask, "ann", "k1")
        self._takes(ask, "bob", "k2")
        self._takes(ask, "cy", "k3")
        assert isinstance(self._waits(ask, "bob", "k1", now=101.0), Queued)
        assert isinstance(self._waits(ask, "bob", "k3", now=101.0), Queued)
        assert isinstance(self._waits(ask, "ann", "k2", now=102.0), Queued)

    # Alarm, where it is harder to see.

    def test_a_semaphore_whose_holders_are_all_stuck(self, ask: Asker) -> None:
        self._takes(ask, "ann", "k1", terms=permits(2))
        self._takes(ask, "cy", "k1", terms=permits(2))
        self._takes(ask, "bob", "k2")
        self._waits(ask, "bob", "k1", now=101.0, terms=permits(2))
        self._waits(ask, "ann", "k2", now=102.0)
        self._waits(ask, "cy", "k2", now=103.0)
        answers = [
            self._waits(ask, "bob", "k1", now=104.0, terms=permits(2)),
            self._waits(ask, "ann", "k2", now=104.0),
            self._waits(ask, "cy", "k2", now=104.0),
        ]
        assert sum(isinstance(answer, Deadlocked) for answer in answers) == 1
        assert sum(isinstance(answer, Queued) for answer in answers) == 2

    def test_an_owner_in_its_own_way(self, ask: Asker) -> None:
        self._takes(ask, "ann", "k1", terms=permits(3, take=2))
        answer = ask.acquire(
            "ann-2", now=101.0, key="k1", owner="ann", terms=permits(3, take=2), wait=True, patience=1000.0
        )
        assert answer == Deadlocked((Link("ann", "k1", CLIENT.host, CLIENT.pid),))

    def test_an_owner_is_not_in_its_own_way_if_somebody_else_can_make_room(self, ask: Asker) -> None:
        self._takes(ask, "ann", "k1", terms=permits(3))
        self._takes(ask, "bob", "k1", terms=permits(3))
        answer = ask.acquire(
            "ann-2", now=101.0, key="k1", owner="ann", terms=permits(3, take=2), wait=True, patience=1000.0
        )
        assert isinstance(answer, Queued)

    def test_a_reader_behind_a_writer(self, ask: Asker) -> None:
        """Cy waits for no holder of k1, but for the writer before it."""
        self._takes(ask, "ann", "k1", terms=SHARED)
        self._takes(ask, "cy", "k2")
        assert isinstance(self._waits(ask, "bob", "k1", now=101.0), Queued)
        assert isinstance(self._waits(ask, "cy", "k1", now=102.0, terms=SHARED), Queued)
        answer = self._waits(ask, "ann", "k2", now=103.0)
        assert answer == Deadlocked(
            (self._link("ann", "k2"), self._link("cy", "k1"), self._link("bob", "k1"))
        )

    def test_one_who_waits_in_the_queue_of_a_circle_is_left_alone(self, ask: Asker) -> None:
        """It waits for the circle, and is no part of it."""
        self._takes(ask, "ann", "k1")
        self._takes(ask, "bob", "k2")
        self._waits(ask, "ann", "k2", now=101.0)
        assert isinstance(self._waits(ask, "eve", "k2", now=101.0), Queued)
        assert isinstance(self._waits(ask, "bob", "k1", now=102.0), Deadlocked)
        assert isinstance(self._waits(ask, "eve", "k2", now=103.0), Queued)
        assert isinstance(self._waits(ask, "ann", "k2", now=103.0), Queued)

    def _circle(self, ask: Asker) -> None:
        self._takes(ask, "ann", "k1")
        self._takes(ask, "bob", "k2")
        self._waits(ask, "ann", "k2", now=101.0)
        self._waits(ask, "bob", "k1", now=102.0)

    @staticmethod
    def _takes(ask: Asker, owner: str, key: str, *, terms: Terms = PLAIN, ttl: float = 1000.0) -> int:
        return ask.take(f"{owner}:{key}", now=100.0, key=key, owner=owner, terms=terms, ttl=ttl).token

    @staticmethod
    def _waits(
        ask: Asker, owner: str, key: str, *, now: float, terms: Terms = PLAIN, patience: float = 1000.0
    ) -> Answer:
        return ask.acquire(
            f"{owner}:{key}", now=now, key=key, owner=owner, terms=terms, wait=True, patience=patience
        )

    @staticmethod
    def _link(owner: str, key: str) -> Link:
        return Link(owner, key, CLIENT.host, CLIENT.pid)
