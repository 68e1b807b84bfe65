"""Situations in which a fast path has to leave exactly what the rules leave, and to tell the same.

A store that keeps the whole history always goes by the rules. Two stores are put into the same situation, and
then asked the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.family import Outcome, Terms
from holdfast.core.requests import (
    Acquire,
    Release,
    Request,
    Resize,
    Signal,
    Withdraw,
)
from holdfast.testing.conformance import CLIENT, OTHER_CLIENT
from holdfast.testing.conformance.asker import KEY, OPERATION, SHARED, permits

TABLES = {
    "holdfast_locks": "lock_key, token, owner, attempt, claimed, expires_at, granted_at, instance, host, pid,"
    " last_attempt, holds, waiters, next_ticket, notes",
    "holdfast_holds": "*",
    "holdfast_tickets": "*",
    "holdfast_ended": "*",
}


class House:
    """A store, and one client that asks it."""

    store: Any
    heard: list[Signal]

    def ask(self, request: Request[Any]) -> Any:
        return self.store.execute(request)

    def take(self, attempt: str, now: float, **options: Any) -> Any:
        options = {"owner": attempt, "ttl": 10.0, "client": CLIENT, "wait": True, "claim": 5.0} | options
        return self.ask(Acquire(KEY, attempt, now=now, patience=options.pop("patience", 15.0), **options))

    def release(self, attempt: str, now: float, **options: Any) -> Any:
        token = options.pop("token", None) or self.read("holdfast_locks", "token")[0][0]
        return self.ask(Release(KEY, attempt, token, now=now, **options))

    def read(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        """Return the rows of a table, in their order."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return all that there is, and what was told."""
        return {table: self.read(table, columns) for table, columns in TABLES.items()} | {"heard": self.heard}


Play = Callable[[House], Any]


def held(house: House) -> None:
    house.take("a-1", 100.0)


def expired(house: House) -> None:
    house.take("a-1", 90.0)


def held_by_the_same_owner(house: House) -> None:
    house.take("a-1", 100.0, owner="b-1")


def a_ticket_already(house: House) -> None:
    held(house)
    house.take("b-1", 100.0)


def withdrawn(house: House) -> None:
    held(house)
    house.ask(Withdraw(KEY, "b-1", now=100.0))


def released_last(house: House) -> None:
    house.take("b-1", 99.0)
    house.release("b-1", 99.5)
    held(house)


def a_dead_head(house: House) -> None:
    house.take("a-1", 100.0, ttl=60.0)
    house.take("dead", 100.0, patience=0.5)


def a_living_head(house: House) -> None:
    held(house)
    house.take("c-1", 100.0, client=OTHER_CLIENT)


def shared(house: House) -> None:
    house.take("a-1", 100.0, terms=SHARED)


def entered_twice(house: House) -> None:
    house.take("a-1", 100.0, owner="ann")
    house.take("a-2", 100.0, owner="ann")


def an_operation(house: House) -> None:
    house.take("a-1", 100.0, terms=OPERATION)


def with_notes(house: House) -> None:
    house.take("a-0", 99.0, terms=permits(2))
    house.release("a-0", 99.5)
    held(house)


def free_for_whom_it_was_handed(house: House) -> None:
    house.take("a-1", 100.0)
    house.take("b-1", 100.0)
    house.release("a-1", 100.5)


def waited_for(house: House) -> None:
    """Whoever asks has another lock, which somebody waits for."""
    held(house)
    house.ask(Acquire("other", "o-1", "b-1", 60.0, CLIENT, now=100.0, wait=True))
    house.ask(Acquire("other", "o-2", "a-1", 60.0, CLIENT, now=100.0, wait=True))


JOINS = [
    held,
    expired,
    held_by_the_same_owner,
    a_ticket_already,
    withdrawn,
    released_last,
    a_dead_head,
    a_living_head,
    shared,
    entered_twice,
    an_operation,
    with_notes,
    free_for_whom_it_was_handed,
    waited_for,
]


def waiting(*waiters: dict[str, Any], **holder: Any) -> Play:
    def play(house: House) -> None:
        house.take("a-1", 100.0, **holder)
        for number, options in enumerate(waiters, 1):
            house.take(f"b-{number}", 100.0, **options)

    return play


def handed_before(house: House) -> None:
    """The holder entered by the hand-over, and has not claimed."""
    house.take("a-0", 100.0)
    house.take("a-1", 100.0)
    house.take("b-1", 100.0)
    house.release("a-0", 100.5)


HAND_OVERS: dict[str, Play] = {
    "one waits": waiting({}),
    "two wait": waiting({}, {}),
    "for a client elsewhere": waiting({"client": OTHER_CLIENT}, {}),
    "nobody waits": waiting(),
    "the head is dead": waiting({"patience": 0.5}, {}),
    "the second is dead": waiting({}, {"patience": 0.5}, {}),
    "all are dead": waiting({"patience": 0.5}, {"patience": 0.5}),
    "the second has longer to claim": waiting({}, {"claim": 7.0}),
    "the second has less to claim": waiting({}, {"claim": 3.0}),
    "the head reads": waiting({"terms": SHARED}, {"terms": SHARED}),
    "the second reads": waiting({}, {"terms": SHARED}),
    "the head has an operation": waiting({"terms": OPERATION}),
    "the head has a delay": waiting({"terms": Terms(delay=1.0)}),
    "a reader holds": waiting({}, terms=SHARED),
    "an operation holds": waiting({}, terms=OPERATION),
    "it stays taken for a while": waiting({}, terms=Terms(at_least=5.0)),
    "it has expired": waiting({}, {}, ttl=0.5),
    "it was handed over": handed_before,
}


# Semaphores.


def semaphore(*holders: dict[str, Any], waiters: tuple[dict[str, Any], ...] = ()) -> Play:
    """Some have permits, of two that there are, and some wait."""

    def play(house: House) -> None:
        for number, options in enumerate(holders, 1):
            house.take(f"a-{number}", 100.0, **{"terms": permits(2), "ttl": 10.0 + number} | options)
        for number, options in enumerate(waiters, 1):
            house.take(f"w-{number}", 100.0, **{"terms": permits(2)} | options)

    return play


FULL: tuple[dict[str, Any], ...] = ({}, {})
ONE: dict[str, Any] = {}


def withdrawn_from_it(house: House) -> None:
    semaphore(*FULL, waiters=(ONE,))(house)
    house.ask(Withdraw(KEY, "b-1", now=100.0))


def queued_there(house: House) -> None:
    semaphore(*FULL, waiters=(ONE,))(house)
    house.take("b-1", 100.0, terms=permits(2))


def one_has_left(house: House) -> None:
    semaphore(*FULL, waiters=(ONE,))(house)
    house.ask(Withdraw(KEY, "w-1", now=100.0))


def two_have_left(house: House) -> None:
    one_has_left(house)
    house.ask(Withdraw(KEY, "a-1", held=True, now=100.0))


def resized(there_are: int) -> Play:
    def play(house: House) -> None:
        semaphore(*FULL, waiters=(ONE, ONE))(house)
        house.ask(Resize(KEY, there_are, "ann", now=100.0))

    return play


def as_many_as_holds(house: House) -> None:
    """There are two holds, and two permits by now, but one of the holds has two."""
    semaphore({"terms": permits(3, take=2)}, {"terms": permits(3)})(house)
    house.ask(Resize(KEY, 2, "ann", now=100.0))
    house.take("w-1", 100.0, terms=permits(2))


def wanted_elsewhere(house: House) -> None:
    semaphore(*FULL, waiters=(ONE,))(house)
    house.ask(Acquire("other", "o-1", "b-1", 60.0, CLIENT, now=100.0, wait=True))
    house.ask(Acquire("other", "o-2", "a-1", 60.0, CLIENT, now=100.0, wait=True))


SEMAPHORES: dict[str, Play] = {
    "full": semaphore(*FULL, waiters=(ONE,)),
    "two wait": semaphore(*FULL, waiters=(ONE, ONE)),
    "for a client elsewhere": semaphore(*FULL, waiters=({"client": OTHER_CLIENT}, {"client": OTHER_CLIENT})),
    "held by the same owner": semaphore({"owner": "b-1"}, {}, waiters=(ONE,)),
    "nobody waits": semaphore(*FULL),
    "one has left": one_has_left,
    "not full": semaphore({}),
    "the first has expired": semaphore({"ttl": 0.5}, {}, waiters=(ONE, ONE)),
    "the last has expired": semaphore({}, {"ttl": 0.5}, waiters=(ONE, ONE)),
    "the head is dead": semaphore(*FULL, waiters=({"patience": 0.5}, ONE)),
    "the second is dead": semaphore(*FULL, waiters=(ONE, {"patience": 0.5}, ONE)),
    "the head wants two": semaphore(*FULL, waiters=({"terms": permits(2, take=2)}, ONE)),
    "the second wants two": semaphore(*FULL, waiters=(ONE, {"terms": permits(2, take=2)})),
    "both are with one": semaphore({"terms": permits(2, take=2)}, waiters=(ONE, ONE)),
    "the head wants all": semaphore(*FULL, waiters=({"terms": Terms()}, ONE)),
    "the second has long to claim": semaphore(*FULL, waiters=(ONE, {"claim": 14.0})),
    "the second has little to claim": semaphore(*FULL, waiters=(ONE, {"claim": 0.5})),
    "the winner has little to claim": semaphore(*FULL, waiters=({"claim": 0.5}, ONE)),
    "one stays taken for a while": semaphore(
        {"terms": Terms(mode="permits", permits=2, at_least=9.0)}, {}, waiters=(ONE,)
    ),
    "of one permit": semaphore({"terms": permits(1)}, waiters=({"terms": permits(1)},)),
    "withdrawn": withdrawn_from_it,
    "queued": queued_there,
    "more than before": resized(3),
    "two have left": two_have_left,
    "fewer than before": resized(1),
    "as many as holds": as_many_as_holds,
    "the second wants all": semaphore(*FULL, waiters=(ONE, {"terms": Terms(), "claim": 9.5}, ONE)),
    "wanted elsewhere": wanted_elsewhere,
}
ASKED = {
    "one": permits(2),
    "two": permits(2, take=2),
    "three": permits(2, take=3),
    "of three": permits(3),
    "of however many": Terms(mode="permits"),
    "for long": Terms(mode="permits", permits=2, at_least=9.0),
    "all": Terms(),
}

RELEASES: tuple[dict[str, Any], ...] = ({}, {"retire": True}, {"token": 7}, {"outcome": Outcome(True, "1")})


# What both are asked then.


def compare_joins(houses: Sequence[House], situation: Play) -> None:
    """Ask for a plain lock."""
    fast, ruled = houses
    for house in houses:
        situation(house)
    assert fast.take("b-1", 101.0) == ruled.take("b-1", 101.0)
    assert fast.state() == ruled.state()


def compare_hand_overs(houses: Sequence[House], situation: str, options: dict[str, Any]) -> None:
    """Release a plain lock."""
    fast, ruled = houses
    for house in houses:
        HAND_OVERS[situation](house)
    assert fast.release("a-1", 101.0, **options) == ruled.release("a-1", 101.0, **options)
    assert fast.state() == ruled.state()


def compare_joins_of_semaphores(houses: Sequence[House], situation: str, asked: str) -> None:
    """Ask for a permit."""
    fast, ruled = houses
    for house in houses:
        SEMAPHORES[situation](house)
    assert fast.take("b-1", 101.0, terms=ASKED[asked]) == ruled.take("b-1", 101.0, terms=ASKED[asked])
    assert fast.state() == ruled.state()
    # And when it is asked once more, by an attempt that is there already.
    assert fast.take("w-1", 101.5, terms=ASKED[asked]) == ruled.take("w-1", 101.5, terms=ASKED[asked])
    assert fast.state() == ruled.state()


def compare_releases_of_permits(
    houses: Sequence[House], situation: str, releases: str, options: dict[str, Any]
) -> None:
    """Release a permit."""
    answers = []
    for house in houses:
        SEMAPHORES[situation](house)
        tokens = dict(house.read("holdfast_holds", "attempt, token"))
        answers.append(house.release(releases, 101.0, **{"token": tokens.get(releases, 7)} | options))
    assert answers[0] == answers[1]
    assert houses[0].state() == houses[1].state()
