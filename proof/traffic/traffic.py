"""What a thread or a task does, turn by turn, from a seed: which lock, for how long, and how it is left.

Most turns are short, so that there are many. Some hold a lock for longer than its ttl, so that it has to be
renewed; some walk away from it, so that somebody takes over when it expires; some enter it again, and leave
in either order; a few break what somebody else has.

Some of what is done with a lease is done by another thread or task of the process; some blocks are entered
in one and left in another. Most turns give their owner's name; others are in the scope of an owner, or are
nested blocks, and the owner of what is inside is that of the block.

Some updates doze: they take as long as the lease lasts, or longer. Those that are not renewed meanwhile stand
for a program that is stopped without any fault of ours; those that are renewed can come too late only if a
fault keeps them from it. All kinds of updates doze alike, so that they differ by nothing but their guard.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import holdfast
from holdfast import LeaseLost, Settings
from holdfast.client.leases import BaseLease
from proof.histories.recorder import Recorder
from proof.histories.records import BARE, FENCED, OPERATION, PERMITS, PLAIN, RAISED, SEMAPHORE, SHARED
from proof.traffic.hands import Doing, Hands
from proof.traffic.resources import looked_at
from proof.traffic.turns import Owned, Turn

# How many keys there are of each kind, and how many of a hundred turns are for it.
KEYS = {PLAIN: 8, SHARED: 3, PERMITS: 1, OPERATION: 3, FENCED: 3, RAISED: 3, BARE: 3}
SHARES = {PLAIN: 62, SHARED: 8, PERMITS: 12, OPERATION: 5, FENCED: 5, RAISED: 4, BARE: 4}

# How an update dozes, and how many of a hundred that do: without renewal before its guard and its first read,
# or between read and write; or there, renewed. A fence in a transaction has done its work once it is set, so
# there the first is what matters.
BEFORE, BETWEEN, RENEWED = "before", "between", "renewed"
DOZES = {
    FENCED: {BEFORE: 50, BETWEEN: 25, RENEWED: 25},
    RAISED: {BEFORE: 25, BETWEEN: 40, RENEWED: 35},
    BARE: {BEFORE: 25, BETWEEN: 40, RENEWED: 35},
}

SHORTEST, LONGEST = 0.6, 1.5  # seconds of a ttl
PATIENT = 2.0  # seconds that somebody waits for a lock at most


def settings() -> Settings:
    """Return how the clients of the traffic are set up: nobody waits for long."""
    return Settings(ttl=1.0, heartbeat=0.2, claim=0.5, patience=1.5, release_timeout=2.0, sweep_every=20.0)


@dataclass(frozen=True)
class Habits:
    """How often something is done, as a part of the turns; and what fits the store."""

    kinds: tuple[str, ...] = tuple(SHARES)
    rest: float = 0.01  # seconds between two turns, on average
    walks: float = 0.06
    reenters: float = 0.15
    lasts: float = 0.03  # needs to be renewed
    breaks: float = 0.01
    hands: float = 0.2  # of what is done with a lease: in another thread or task
    scopes: float = 0.2  # the owner is that of a scope
    nests: float = 0.1  # of plain turns: blocks, and nobody says who the owner is
    dozes: float = 0.2  # of updates; `DOZES` says how
    longest_fence: float = LONGEST * 1.5  # where a fence stops all others, nobody may be so slow
    shares: dict[str, int] = field(default_factory=lambda: dict(SHARES))


class Traffic:
    """The turns of one thread or task, *worker*. After a turn was interrupted, `owner` is whose it was."""

    def __init__(self, hands: Hands, recorder: Recorder, worker: str, seed: str, habits: Habits) -> None:
        self._hands = hands
        self._recorder = recorder
        self._worker = worker
        self._dice = random.Random(f"{seed} {worker}")
        self._habits = habits
        self._turns = 0
        self._last: Turn | None = None

    @property
    def owner(self) -> str:
        """Whose the last turn was."""
        return self._last.owner if self._last is not None else ""

    async def turn(self, kind: str | None = None) -> None:
        """Take one turn, of some *kind*, and rest."""
        dice, habits = self._dice, self._habits
        if kind is None:
            kind = dice.choices(habits.kinds, [habits.shares[each] for each in habits.kinds])[0]
        self._turns += 1
        owner = f"{self._worker}-{self._turns}"
        owned: Owned = "given"
        if kind == PLAIN and dice.random() < habits.nests:
            owned = "block"
        elif dice.random() < habits.scopes:
            owned = "scope"
        key = f"{kind}:{dice.randrange(KEYS[kind])}"
        turn = self._last = Turn(self._hands, self._recorder, self._worker, owner, key, owned)
        ways: dict[str, Callable[[Turn], Awaitable[None]]] = {
            PLAIN: self._plain,
            SHARED: self._shared,
            PERMITS: self._permits,
            OPERATION: self._operation,
        }
        try:
            with holdfast.owner(owner) if owned == "scope" else nullcontext():
                if owned == "block":
                    await self._nested(turn)
                elif kind in ways:
                    await ways[kind](turn)
                else:
                    await self._update(turn, kind)
        finally:
            await turn.end()
        await self._hands.pause(dice.uniform(0, 2 * habits.rest))

    # Kinds of turns.

    async def _plain(self, turn: Turn) -> None:
        dice, habits = self._dice, self._habits
        if dice.random() < habits.breaks:
            await turn.break_in()
        walks = dice.random() < habits.walks
        ttl = SHORTEST if walks else self._ttl()
        lasts = not walks and dice.random() < habits.lasts
        stops = lasts and dice.random() < 0.2  # its lease ends while it is at it
        limits = {"max_hold": ttl} if stops else {}
        lease = await self._acquire(turn, ttl, renew=not walks, **limits)
        if lease is None:
            return
        await self._hands.pause(ttl * dice.uniform(1.2, 2.0) if lasts else self._moment())
        await self._pass_on(turn, turn.look(lease))
        leases = [lease]
        if dice.random() < habits.reenters:
            leases += await self._reenter(turn, dice.randint(1, 2), renew=not walks)
        for each in leases if dice.random() < 0.5 else reversed(leases):
            if walks and dice.random() < 0.8:
                turn.walk_away(each)
            else:
                await self._pass_on(turn, turn.give(each))

    async def _nested(self, turn: Turn) -> None:
        """Enter blocks, one inside of the other: what is inside is the owner of the outermost one."""
        async with turn.block("acquire", ttl=self._ttl(), wait=self._patience()) as lease:
            if lease is None:
                return
            await self._hands.pause(self._moment())
            async with turn.block("reenter", ttl=self._ttl(), wait=self._dice.uniform(0.2, 1.0)) as inner:
                await self._hands.pause(self._moment())
                if inner is not None:
                    await self._pass_on(turn, turn.look(inner))
            await self._pass_on(turn, turn.look(lease))

    async def _reenter(self, turn: Turn, levels: int, *, renew: bool) -> list[BaseLease]:
        leases = []
        for _ in range(levels):
            ttl = self._ttl() if renew else SHORTEST
            lease = await turn.take("reenter", ttl=ttl, wait=self._dice.uniform(0.2, 1.0), renew=renew)
            if lease is not None:
                leases.append(lease)
                await self._hands.pause(self._moment())
        return leases

    async def _shared(self, turn: Turn) -> None:
        mode = "shared" if self._dice.random() < 0.7 else "exclusive"
        lease = await self._acquire(turn, self._ttl(), mode=mode)
        if lease is None:
            return
        await self._hands.pause(self._moment())
        if mode == "exclusive" and self._dice.random() < 0.3:
            await self._pass_on(turn, turn.downgrade(lease))
            await self._hands.pause(self._moment())
        await self._leave(turn, lease)

    async def _permits(self, turn: Turn) -> None:
        # Seldom two: stores have a fast way for permits that are all taken one by one, while somebody waits.
        take = 2 if self._dice.random() < 0.15 else 1
        lease = await self._acquire(turn, self._ttl(), permits=SEMAPHORE, take=take)
        if lease is not None:
            await self._hands.pause(self._moment())
            await self._leave(turn, lease)

    async def _operation(self, turn: Turn) -> None:
        dice = self._dice
        doing = Doing(turn.owner, dice.uniform(0, 0.1), fails=dice.random() < 0.2, once=dice.random() < 0.3)
        await turn.operate(doing, ttl=self._ttl(), wait=self._patience(), max_attempts=3)

    async def _update(self, turn: Turn, kind: str) -> None:
        dice, habits = self._dice, self._habits
        how = dice.choices(list(DOZES[kind]), list(DOZES[kind].values()))[0]
        doze = how if dice.random() < habits.dozes else ""
        renew = doze in ("", RENEWED)
        ttl = SHORTEST if doze else self._ttl()
        nap = ttl * dice.uniform(0.9, 1.6)
        # Who is not renewed on purpose must not look: else it would notice, and nothing could be lost.
        check = renew and dice.random() < 0.5
        just_looked = dice.random() < 0.75
        moment = self._moment()
        lease = await turn.take("acquire", ttl=ttl, wait=self._patience(), renew=renew)
        if lease is None:
            return
        used, looked = lease, False
        if doze == BEFORE:
            with suppress(LeaseLost):  # a fault has been at work
                if just_looked:
                    used, looked = looked_at(lease), True
            await self._hands.pause(nap)
            await turn.look(lease)
        seconds = nap if doze in (BETWEEN, RENEWED) else moment
        if kind == FENCED:
            seconds = min(seconds, habits.longest_fence)
        asleep = 0.0 if renew else nap
        update = turn.update(kind, used, seconds=seconds, check=check, looked=looked, asleep=asleep)
        await self._pass_on(turn, update)
        await self._pass_on(turn, turn.give(lease))

    # How they are taken and left.

    async def _acquire(
        self, turn: Turn, ttl: float, *, renew: bool = True, **options: Any
    ) -> BaseLease | None:
        if self._dice.random() < self._habits.hands / 2:
            return await turn.enter(ttl=ttl, wait=self._patience(), renew=renew, **options)
        if self._dice.random() < 0.25:
            return await turn.take("try", ttl=ttl, renew=renew, **options)
        return await turn.take("acquire", ttl=ttl, wait=self._patience(), renew=renew, **options)

    async def _leave(self, turn: Turn, lease: BaseLease) -> None:
        if self._dice.random() < self._habits.walks:
            turn.walk_away(lease)
        else:
            await self._pass_on(turn, turn.give(lease))

    async def _pass_on(self, turn: Turn, doing: Coroutine[Any, Any, None]) -> None:
        """Do something with a lease: here, or in another thread or task of the process."""
        await (turn.elsewhere(doing) if self._dice.random() < self._habits.hands else doing)

    def _ttl(self) -> float:
        return round(self._dice.uniform(SHORTEST, LONGEST), 3)

    def _patience(self) -> float:
        return round(self._dice.uniform(0.1, PATIENT), 3)

    def _moment(self) -> float:
        return self._dice.uniform(0, 0.02)
