"""One turn of the traffic: a lock is taken, entered again, left behind or given back, and all of it noted.

A turn is written once, as coroutines, for threads and for tasks: what really waits are its `hands`. Those of
a thread block and never suspend, so `hands.run` can drive the coroutine of a turn to its end in one go.

Whatever a turn does with a lease, it may leave to another thread or task of its process, and wait for that:
the object is the proof. Whose lease it is stays the same, so the turn is the same for the checkers, and a
call says ``by`` whom it was made. Blocks are entered in one thread or task and left in another one, too.

The owner of a turn is given for each lock, or it is that of a scope (`holdfast.owner`), or nobody says: then
it is that of the turn's outermost block, and its name is noted before the store hears of it.

The outcome of a call says what happened to the lock, as far as the process can know: ``ok``, it was done;
``refused``, it certainly was not; else ``unknown``. So whoever gave up waiting is ``unknown`` if a lost
answer may have been a grant; and whoever is told on release that its lease is lost, but has the store's word
that it is released now, is ``ok``. What the caller was told is in ``error``. What is unknown has not
returned: a late statement may still do it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, TypeVar

from holdfast import HoldfastError, LeaseLost, LockTimeout, OperationFailed, identity
from holdfast.client import ownership
from holdfast.client.leases import BaseLease
from holdfast.clock import boot_time
from proof.histories.recorder import Recorder, text_of
from proof.histories.records import Outcome
from proof.traffic.excuses import Planned, explains, is_drivers
from proof.traffic.hands import Doing, Hands
from proof.traffic.resources import FencedOff

T = TypeVar("T")
Owned = Literal["given", "scope", "block"]  # how the owner of a turn comes about

_naming: ContextVar[Callable[[str], None] | None] = ContextVar("naming", default=None)
_current = ownership.current


def _note_name() -> str:
    """Return the owner by default, and tell whoever wants to know before it is used."""
    owner = _current()
    if (note := _naming.get()) is not None:
        note(owner)
    return owner


ownership.current = _note_name


@dataclass(slots=True)
class Held:
    """A lease that a turn has."""

    lease: BaseLease
    since: float
    lost: list[float] = field(default_factory=list)  # when the turn was told that it has lost it
    seen: float = 0.0  # when `held` last said yes, to somebody who asked just after
    block: AbstractAsyncContextManager[BaseLease] | None = None  # that it was entered by

    def look(self) -> None:
        """Ask the lease whether it is held, as programs do."""
        asked = boot_time()
        if self.lease.held:
            self.seen = asked

    def until(self, given_up: float | None) -> float:
        """Tell until when it was trusted; None: it was not given up, and so as long as it could be.

        At least until the lease last said that it is held: what programs are told counts, whatever the
        library has in its books.
        """
        self.look()
        ends = [self.lease._holding.kept.trusted_until, *self.lost]
        return max(min(ends if given_up is None else [*ends, given_up]), self.seen)


class Turn:
    """One turn of one thread or task, under an owner of its own."""

    def __init__(
        self,
        hands: Hands,
        recorder: Recorder,
        worker: str,
        owner: str,
        key: str,
        owned: Owned = "given",
    ) -> None:
        self._hands = hands
        self._owned = owned
        self._me = identity.name()
        self._recorder = recorder
        self.worker, self.owner, self.key = worker, owner, key
        self._held: dict[str, Held] = {}  # by attempt
        self._attempts: list[str] = []
        self._trust: dict[int, tuple[float, float]] = {}  # token → since, until

    async def take(self, kind: str, *, ttl: float, wait: float = 0.0, **options: Any) -> BaseLease | None:
        """Take the lock, as *kind* says: acquire, try, or reenter. None if it is not to be had."""
        lost: list[float] = []
        outcome = self._taking()
        wanted = self._wanted(options, lost, ttl=ttl)
        with self._call(kind, outcome, ttl=ttl, wait=wait, **terms_of(options)) as told:
            if kind == "try":
                lease = await self._hands.try_acquire(self.key, **wanted)
            else:
                lease = await self._hands.acquire(self.key, **wanted, timeout=wait)
            if lease is None:
                told["outcome"] = outcome(LockTimeout(self.key, waited=0.0))
                return None
            self._keep(Held(lease, boot_time(), lost))
            told |= {"token": lease.token, "trusted_until": lease._holding.kept.trusted_until}
            return lease
        return None

    def _taking(self) -> Callable[[BaseException], Outcome]:
        granted_before = self._recorder.grants(self.owner)

        def outcome(_: BaseException) -> Outcome:
            return "unknown" if self._recorder.grants(self.owner) > granted_before else "refused"

        return outcome

    def _wanted(self, options: dict[str, Any], lost: list[float], **more: Any) -> dict[str, Any]:
        owner = {"owner": self.owner} if self._owned == "given" else {}
        return {**options, **more, **owner, "on_lost": lambda _: lost.append(boot_time())}

    def block(self, kind: str, *, ttl: float, wait: float, **options: Any) -> Block:
        """Return a block that takes the lock, as *kind* says, and gives it back."""
        return Block(self, kind, ttl, wait, options)

    async def enter(self, *, ttl: float, wait: float, **options: Any) -> BaseLease | None:
        """Enter a block in another thread or task, to be left in yet another one."""
        block = self.block("acquire", ttl=ttl, wait=wait, **options)
        return await self._hands.elsewhere(block.__aenter__())

    async def elsewhere(self, doing: Coroutine[Any, Any, T]) -> T:
        """Do something of the turn in another thread or task of the process."""
        return await self._hands.elsewhere(doing)

    async def give(self, lease: BaseLease) -> None:
        """Release a lease."""
        attempt = lease._holding.kept.grant.attempt
        held = self._held[attempt]
        self._note(held, held.until(boot_time()))
        self._drop(attempt)
        fields = {"token": lease.token, "mode": "shared" if lease.mode == "shared" else "exclusive"}
        with self._call("release", lambda _: self._recorder.release_of(attempt), **fields):
            if held.block is None:
                await self._hands.release(lease)
            else:
                await held.block.__aexit__(None, None, None)

    def walk_away(self, lease: BaseLease) -> None:
        """Leave a lease to its end. It is trusted until then: whoever takes over has to come later."""
        attempt = lease._holding.kept.grant.attempt
        held = self._held[attempt]
        self._drop(attempt)
        self._hands.forget(attempt)
        self._note(held, held.until(None))

    async def downgrade(self, lease: BaseLease) -> None:
        """Share an exclusive lease from now on. It is trusted to be exclusive until just before."""
        held = self._held[lease._holding.kept.grant.attempt]
        self._note(held, held.until(boot_time()))
        held.since = float("inf")  # not noted again: what is trusted from now on is another thing
        with self._call("downgrade", lambda _: "unknown", token=lease.token, mode="shared"):
            await self._hands.downgrade(lease)

    async def look(self, lease: BaseLease) -> None:
        """Ask a lease whether it is held: what it says is what is believed."""
        self._held[lease._holding.kept.grant.attempt].look()

    async def update(
        self,
        kind: str,
        lease: BaseLease,
        *,
        seconds: float,
        check: bool = False,
        looked: bool = False,
        asleep: float = 0.0,
    ) -> None:
        """Update the resource that the lock protects, with a pause between its read and its write.

        *looked*: the lease was `looked_at`. *asleep*: for so many seconds of the turn it is not renewed
        on purpose, before the read or after it; that is noted as what the update has waited.
        """

        def outcome(error: BaseException) -> Outcome:
            return "refused" if isinstance(error, LeaseLost) else "unknown"

        with self._call("update", outcome, token=lease.token, value=self.owner, wait=asleep):
            try:
                await self._hands.update(kind, lease, self.key, self.owner, seconds, check)
            except LeaseLost as lost:
                if looked and not isinstance(lost, FencedOff):
                    raise FencedOff(lost.key, lost.reason, token=lost.token, detail=lost.detail) from lost
                raise

    async def operate(self, doing: Doing, *, ttl: float, wait: float, **options: Any) -> None:
        """Do something once for all who want it, or learn what came of it."""
        granted_before = self._recorder.grants(self.owner)

        def outcome(error: BaseException) -> Outcome:
            failed = isinstance(error, OperationFailed | Planned)
            never_had = self._recorder.grants(self.owner) == granted_before
            return "refused" if failed or never_had else "unknown"

        wanted = {**options, "ttl": ttl, "timeout": wait}
        if self._owned == "given":
            wanted["owner"] = self.owner
        try:
            with self._call("operate", outcome, ttl=ttl, wait=wait, value=doing.value) as told:
                told["value"] = await self._hands.operate(self.key, doing, **wanted)
                told["token"] = doing.token
        finally:
            if doing.token:
                self._trust[doing.token] = doing.since, doing.until

    async def break_in(self) -> None:
        """Break the lock, whoever has it. It is no call of ours: what is asked for is noted all the same."""
        try:
            await self._hands.break_lock(self.key)
        except HoldfastError as error:
            if not explains(error):
                raise

    async def end(self) -> None:
        """Give back what is left, also after an interrupt or a cancellation, and note what was trusted.

        All of it, even if there is another one meanwhile: what were left would be renewed for ever.
        """
        errors: list[BaseException] = []
        try:
            for held in list(self._held.values()):
                try:
                    await self.give(held.lease)
                except BaseException as error:
                    errors.append(error)
            if errors:  # a complaint rather than an interrupt
                raise next((error for error in errors if isinstance(error, Exception)), errors[0])
        finally:
            for token, (since, until) in self._trust.items():
                self._recorder.trusted(
                    key=self.key, owner=self.owner, token=token, since=since, until=max(since, until)
                )
            self._recorder.forget(self.owner, self._attempts)

    @contextmanager
    def _call(
        self, kind: str, outcome: Callable[[BaseException], Outcome], **fields: Any
    ) -> Generator[dict[str, Any], None, None]:
        """Note a call and what becomes of it, and swallow what a fault explains.

        What else is to be told of it goes into what this yields.
        """
        names = {"worker": self.worker, "kind": kind, "key": self.key, "owner": self.owner}
        if (me := identity.name()) != self._me:
            names["by"] = me
        number = self._recorder.asked(**names, **fields)
        told: dict[str, Any] = {"outcome": "ok"}

        def name(owner: str) -> None:
            self.owner = owner
            self._recorder.named(number, owner)

        naming = _naming.set(name if self._owned == "block" else None)
        try:
            yield told
        except BaseException as error:
            excused = explains(error) or (kind == "update" and is_drivers(error))
            told = {"outcome": outcome(error) if excused else "unknown", "error": text_of(error)}
            if not excused:
                raise
        finally:
            _naming.reset(naming)
            self._recorder.told(number, **told)

    def _keep(self, held: Held) -> None:
        attempt = held.lease._holding.kept.grant.attempt
        self._held[attempt] = held
        self._attempts.append(attempt)
        self._hands.leases[attempt] = held.lease

    def _drop(self, attempt: str) -> None:
        """Let go of a lease, before it is given back: who forks meanwhile must not count it as held."""
        self._held.pop(attempt, None)
        self._hands.leases.pop(attempt, None)

    def _note(self, held: Held, until: float) -> None:
        if held.since > until:
            return
        since, before = self._trust.get(held.lease.token, (held.since, until))
        self._trust[held.lease.token] = min(since, held.since), max(before, until)


def terms_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return on what terms a lock is taken, as it is noted."""
    return {name: options[name] for name in ("mode", "take") if name in options}


class Block:
    """A block of a turn, with all of it noted. There is no lease for its body if it is not to be had."""

    def __init__(self, turn: Turn, kind: str, ttl: float, wait: float, options: dict[str, Any]) -> None:
        self._turn = turn
        self._kind, self._ttl, self._wait = kind, ttl, wait
        self._options = options
        self._held: Held | None = None

    async def __aenter__(self) -> BaseLease | None:
        turn = self._turn
        lost: list[float] = []
        wanted = turn._wanted(self._options, lost, ttl=self._ttl, timeout=self._wait)
        terms = terms_of(self._options)
        with turn._call(self._kind, turn._taking(), ttl=self._ttl, wait=self._wait, **terms) as told:
            block = turn._hands.block(turn.key, **wanted)
            lease = await block.__aenter__()
            self._held = Held(lease, boot_time(), lost, block=block)
            turn._keep(self._held)
            told |= {"token": lease.token, "trusted_until": lease._holding.kept.trusted_until}
            return lease
        return None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        held, turn = self._held, self._turn
        if held is None or held.block is None:
            return False
        attempt = held.lease._holding.kept.grant.attempt
        turn._note(held, held.until(boot_time()))
        turn._drop(attempt)
        with turn._call("release", lambda _: turn._recorder.release_of(attempt), token=held.lease.token):
            await held.block.__aexit__(kind, error, traceback)
            return False
        return True  # the lease was lost, and the body cancelled for that
