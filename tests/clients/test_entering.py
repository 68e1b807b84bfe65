"""The winner of a hand-over enters by it: without a second request, and with nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import AsyncHoldfast, Holdfast, HoldfastError, Settings
from holdfast.cli.leased_command import timing_of
from holdfast.client.keeper_thread import AWAKE
from holdfast.clock import boot_time
from holdfast.core.data import replace
from holdfast.core.plans import Handed
from holdfast.core.requests import Acquire, Release
from tests.clients.support import PATIENCE, Spy, Stage, eventually
from tests.clients.test_forked import become_a_child
from tests.clients.test_interrupts import Where, held, interrupted_at

# A claim window that a busy machine does not miss.
CLAIM = 20.0
SLOW = Settings(heartbeat=5.0, claim=CLAIM, patience=60.0, sweep_every=None)
SOON = Settings(heartbeat=5.0, claim=CLAIM, patience=60.0, sweep_every=None, renew_at=0.02)

_names = itertools.count()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the winner is told its token."""
    if request.param == "memory":
        return f"memory://entering-{next(_names)}"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/locks.db"
    return str(request.getfixturevalue("postgres_locks"))


class Won:
    """A lock that was handed over to somebody who waited for it."""

    def __init__(self, stage: Stage, settings: Settings = SLOW, **options: Any) -> None:
        self._stage = stage
        self.locks = stage.client(settings=settings)
        self.spy = Spy(self.locks)
        actor = stage.actor("winner")
        # The thread of a keeper that has just begun asks about everything once.
        actor.call(actor.call(self.locks.acquire, "warm-up").release)
        keeper = self.locks._engine.keeper
        eventually(lambda: keeper._thread and AWAKE < keeper._wake_at < math.inf)
        self.spy.seen.clear()
        first = stage.call(stage.locks.acquire, "nightly", ttl=60.0)
        waits: Future[Any] = actor.start(self.locks.acquire, "nightly", **{"ttl": 60.0, **options})
        stage.until_waiting("nightly", 1)
        eventually(self.locks._engine.keeper.tickets)  # that the winner has heard that it waits
        self.actor = actor
        stage.call(first.release)
        self.lease = waits.result(PATIENCE)

    @property
    def requests(self) -> int:
        """How often the winner has asked for the lock."""
        return self.spy.count(Acquire)

    def is_claimed(self) -> bool:
        view = self._stage.look("nightly")
        assert view is not None
        assert view.holder is not None
        return view.holder.claimed

    def release(self) -> None:
        self.actor.call(self.lease.release)
        self._stage.nothing_left()


def test_a_winner_enters_without_a_second_request(stage: Stage) -> None:
    won = Won(stage)
    assert won.requests == 1
    assert won.lease.held
    view = stage.look("nightly")
    assert view is not None
    assert (view.token, won.is_claimed()) == (won.lease.token, False)
    won.release()
    assert (won.requests, won.spy.count(Release)) == (1, 1)


def test_its_keeper_claims_it_later(stage: Stage) -> None:
    won = Won(stage, SOON)
    eventually(won.is_claimed)
    eventually(lambda: won.lease._holding.kept.trusted_until > boot_time() + CLAIM)
    assert won.requests == 1
    assert won.lease.held
    won.release()


def test_a_break_of_a_lease_that_was_entered_is_noticed(stage: Stage) -> None:
    won = Won(stage, SOON)
    assert stage.call(stage.locks.break_lock, "nightly", reason="stuck")
    eventually(lambda: not won.lease.held)
    assert won.requests == 1
    with pytest.raises(HoldfastError, match="stuck"):
        won.lease.check()


@pytest.mark.parametrize(
    "options", [{"renew": False}, {"ttl": CLAIM - 1.0}], ids=["not renewed", "shorter than the window"]
)
def test_who_could_not_claim_it_in_the_background_claims_at_once(stage: Stage, options: Any) -> None:
    won = Won(stage, **options)
    assert won.requests == 2
    assert won.is_claimed()
    won.release()


def test_who_is_set_to_claims_at_once(stage: Stage) -> None:
    """`holdfast run` is: it stops its command a grace before the lease ends."""
    won = Won(stage, replace(SLOW, enters=False))
    assert won.requests == 2
    assert won.lease.remaining > CLAIM
    won.release()


def test_commands_run_under_leases_that_were_claimed() -> None:
    assert not timing_of(30.0, None, None, "at-most").settings.enters


@pytest.mark.parametrize("options", [{"mode": "shared"}, {"permits": 2}], ids=["shared", "permits"])
def test_several_winners_of_one_release_enter(stage: Stage, options: Any) -> None:
    alone = {"permits": 2, "take": 2} if "permits" in options else {}
    first = stage.call(stage.locks.acquire, "nightly", ttl=60.0, **alone)
    clients = [stage.client(settings=SLOW) for _ in range(2)]
    spies = [Spy(client) for client in clients]
    actors = [stage.actor(f"winner {number}") for number in range(2)]
    waits = []
    for number, (client, actor) in enumerate(zip(clients, actors, strict=True)):
        waits.append(actor.start(client.acquire, "nightly", ttl=60.0, **options))
        stage.until_waiting("nightly", number + 1)
    stage.call(first.release)
    leases = [each.result(PATIENCE) for each in waits]
    assert [spy.count(Acquire) for spy in spies] == [1, 1]
    assert all(lease.held for lease in leases)
    for actor, lease in zip(actors, leases, strict=True):
        actor.call(lease.release)
    stage.nothing_left()


# Interrupts and forks, at the moment of entering.


@pytest.fixture(params=["memory", "sqlite"])
def near(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Stores that need no server."""
    return f"memory://near-{next(_names)}" if request.param == "memory" else f"sqlite:///{tmp_path}/near.db"


@pytest.fixture(params=["lines", "calls"])
def at(request: pytest.FixtureRequest) -> Iterator[Where]:
    gc.disable()
    yield request.param
    gc.enable()


class Giver:
    """Somebody who has the lock, and gives it to the first who waits for it."""

    def __init__(self, url: str) -> None:
        self.locks = Holdfast(url, settings=SLOW)

    def begin(self, key: str = "nightly") -> None:
        lease = self.locks.acquire(key, ttl=600.0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._give, args=[lease])
        self._thread.start()

    def _give(self, lease: Any) -> None:
        while not self._over.wait(0.001):
            view = self.locks.inspect(lease.key)
            if view is not None and view.waiting:
                break
        lease.release()

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def test_a_winner_that_is_interrupted_anywhere_leaves_nothing(near: str, at: Where) -> None:
    giver = Giver(near)
    with closing(giver.locks), Holdfast(near, settings=SLOW) as locks:
        spy = Spy(locks)

        def block() -> None:
            with locks.hold("nightly", ttl=60.0):
                pass

        for number in itertools.count(1):
            spy.seen.clear()
            giver.begin()
            where = interrupted_at(number, block, at)
            giver.end()
            if where is None:
                break
            if locks._engine.keeper.kept() or held(giver.locks):
                gc.collect()
                locks._engine.keeper.hurry("")  # else it has a look after a nap
                eventually(lambda: not locks._engine.keeper.kept() and not held(giver.locks), where)
            view = giver.locks.inspect("nightly")
            assert view is None or not view.waiting, where
            assert not locks._engine.keeper.tickets(), where
        assert number > 60, "it was not interrupted while it waited"
        assert spy.count(Acquire) == 1, "it has not entered by the hand-over"


def test_a_loop_that_is_interrupted_anywhere_does_not_keep_what_it_has_won(at: Where) -> None:
    """The task has ended, and nobody has its lease. It is given back, or ends with its claim window."""
    url = f"memory://loop-{next(_names)}"
    giver = Giver(url)

    async def open_client() -> AsyncHoldfast:
        return AsyncHoldfast(url, settings=SLOW)

    async def block(key: str) -> None:
        async with locks.hold(key, ttl=60.0):
            pass

    with closing(giver.locks), closing(asyncio.new_event_loop()) as loop:
        locks = loop.run_until_complete(open_client())
        for number in itertools.count(1):
            giver.begin(f"k-{number}")
            where = interrupted_at(number, lambda: loop.run_until_complete(block(f"k-{number}")), at)  # noqa: B023
            giver.end()
            if where is None:
                break
            loop.run_until_complete(asyncio.sleep(0))  # until then it has the task that has ended
            if locks._engine.keeper.kept():
                gc.collect()
                locks._engine.keeper.hurry("")  # else it has a look after a nap
                eventually(lambda: not locks._engine.keeper.kept(), where)
        assert number > 60, "it was not interrupted while it waited"
        loop.run_until_complete(locks.close())


def test_what_a_parent_has_won_its_child_does_not_enter(near: str) -> None:
    def waits(locks: Holdfast, found: list[Any]) -> None:
        try:
            found.append(locks.acquire("nightly", ttl=60.0))
        except BaseException as error:
            found.append(error)

    with Holdfast(near, settings=SLOW) as others, Holdfast(near, settings=SLOW) as locks:
        lease = others.acquire("nightly", ttl=60.0)
        found: list[Any] = []
        thread = threading.Thread(target=waits, args=[locks, found])
        thread.start()
        eventually(lambda: (view := others.inspect("nightly")) and view.waiting)
        eventually(lambda: locks._engine.keeper.tickets())
        ((attempt, (_, mailbox)),) = locks._engine.mailboxes.items()
        become_a_child(locks)
        mailbox.put(Handed(attempt, lease.token + 1, boot_time(), CLAIM))
        thread.join(PATIENCE)
        assert isinstance(found[0], HoldfastError), found
        assert "the process that forked this one asked" in str(found[0])
        assert not locks._engine.keeper.kept()
        lease.release()
