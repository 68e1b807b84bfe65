"""Acquires that the server waits for: long polls and event streams.

The plan is the one that every client runs; here it runs for a caller whose connection is open. A waiter is a
few objects in the event loop: it has no thread, and no request of its own while it waits.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any, cast

from holdfast import errors
from holdfast.clock import boot_time
from holdfast.core import plans
from holdfast.core.data import data, replace
from holdfast.core.driver import Drive
from holdfast.core.events import HistoryLevel
from holdfast.core.plans import Abandoned, Grant, Wait
from holdfast.core.refusals import error_for
from holdfast.core.requests import Acquire, Done, Failed, NotHeld, Queued, Withdraw
from holdfast.core.settings import Settings
from holdfast.log import log
from holdfast.server.admission.access import Principal
from holdfast.server.backend import Backend
from holdfast.server.http import sse
from holdfast.server.http.message import Stream
from holdfast.server.locks.tickets import OnQueued, SentAway, Tickets, Waiter
from holdfast.server.locks.withdrawals import Withdrawals

Answer = Grant | Done | Queued
Say = Callable[[Any], dict[str, Any]]
Place = AbstractContextManager[Any]

GOING_AWAY = "the server is going away; ask again with the same attempt"
ENDED = "this attempt has ended before, and takes nothing any more: ask with a new one"
CLOSE_WITHIN = 5.0  # seconds

_KINDS = {Grant: "granted", Done: "done", Queued: "queued"}


@data
class Manner:
    """How somebody waits."""

    timeout: float | None = None
    keep: bool = False  # when the time is over return the place in the queue, and leave it
    # The caller knows its attempt, so it may come back for its place if the connection breaks, or if the
    # server goes away. Otherwise nobody could, and it is withdrawn.
    named: bool = True
    history: HistoryLevel | None = None
    principal: Principal | None = None


class Waits:
    """See the module. To be used from one event loop."""

    def __init__(
        self, backend: Backend, *, heartbeats: sse.Heartbeats | None = None, settings: Settings | None = None
    ) -> None:
        self._backend = backend
        self._heartbeats = heartbeats or sse.Heartbeats()
        self._settings = settings or Settings()
        self._tickets = Tickets(backend, self._settings.heartbeat)
        self._withdrawals = Withdrawals(backend, self._settings)
        self._tasks: set[asyncio.Task[None]] = set()  # streams, and what is undone
        self._draining = False
        self.count = 0  # how many acquires there are at this moment

    async def acquire(self, request: Acquire, manner: Manner, on_queued: OnQueued | None = None) -> Answer:
        """Take a lock for a caller who waits; raise what the plan raises."""
        try:
            return await self._acquire(request, manner, on_queued)
        except SentAway as sent:
            if sent.reason == "revoked":
                raise errors.NotAuthenticated(sse.REVOKED) from None
            raise errors.StoreUnavailable(GOING_AWAY) from None

    async def _acquire(self, request: Acquire, manner: Manner, on_queued: OnQueued | None) -> Answer:
        if self._draining:
            raise SentAway("draining")
        request = self._patient(request)
        waiter = Waiter(request, manner.principal, on_queued)
        plan = plans.acquire(
            request,
            timeout=None if manner.keep else manner.timeout,
            settings=self._settings,
            clock=boot_time,
            roll=random.random,
            retire=self._backend.traits.repeats,
        )
        drive = Drive(plan)
        self.count += 1
        try:
            answer = await self._run(drive, waiter, manner)
        except BaseException:
            comes_back = manner.named and waiter.sent_away != "revoked"
            if plan.gi_frame is not None and not comes_back:  # type: ignore[attr-defined]
                await self._surely(self._undo(drive, request, manner.history))
            raise
        finally:
            self.count -= 1
            self._tickets.remove(waiter)
        if waiter.sent_away == "revoked":  # while the last request was under way
            await self._surely(self._give_back(answer, request, manner))
            raise SentAway("revoked")
        return answer

    def _patient(self, request: Acquire) -> Acquire:
        """Return the request with a ticket that outlives our heartbeats; and a grant, a lost signal."""
        heartbeat = self._settings.heartbeat
        claim = max(request.claim, 2 * heartbeat)
        return replace(request, claim=claim, patience=max(request.patience, claim + heartbeat))

    async def _run(self, drive: Drive[Grant | Done], waiter: Waiter, manner: Manner) -> Answer:
        """Do what a plan wants, step by step. Who keeps its place is content with that at the deadline."""
        deadline = None
        if manner.keep and manner.timeout is not None:
            deadline = boot_time() + manner.timeout
        going = drive.tell(None)
        while going:
            step = drive.step
            if isinstance(step, Wait):
                until = min((t for t in (step.until, deadline) if t is not None), default=None)
                going = drive.tell(await waiter.wait(until))
                continue
            if isinstance(step, Acquire):
                self._tickets.add(waiter, step.attempt)
            try:
                result: Any = await self._backend.ask(step, manner.history)
            except errors.StoreError as error:
                if deadline is not None and boot_time() >= deadline:
                    if waiter.queued is None:
                        raise
                    return waiter.queued
                going = self._fail(drive, error, waiter.request)
                continue
            if manner.named and isinstance(result, NotHeld | Done | Failed):
                # It is over, maybe because its caller has ended it elsewhere and left this one long ago.
                # A successor, as the plan would make one, nobody would ever release.
                return _over(waiter.request, result)
            if isinstance(result, Queued):
                self._tickets.keep(waiter, result)
                if waiter.on_queued is not None:
                    waiter.on_queued(result, waiter.attempt)
                if deadline is not None and boot_time() >= deadline:
                    return result
            going = drive.tell(result)
        return cast("Grant | Done", drive.result)

    def _fail(self, drive: Drive[Any], error: errors.StoreError, request: Acquire) -> bool:
        """Tell a plan that a step failed. What it wanted withdrawn is withdrawn later, and nobody waits."""
        if isinstance(drive.step, Withdraw):
            self._withdrawals.add(drive.step, request)
        return drive.fail(error)

    async def _undo(self, drive: Drive[Any], request: Acquire, history: HistoryLevel | None) -> None:
        """Let a plan undo what it did."""
        with suppress(Abandoned):
            going = drive.fail(Abandoned())
            while going and not isinstance(drive.step, Wait):
                try:
                    result = await self._backend.ask(drive.step, history)
                except errors.StoreError as error:
                    going = self._fail(drive, error, request)
                else:
                    going = drive.tell(result)

    async def _give_back(self, answer: Answer, request: Acquire, manner: Manner) -> None:
        attempt = answer.attempt if isinstance(answer, Grant) else request.attempt
        await self._withdraw(Withdraw(request.key, attempt), request, manner.history)

    def withdraw(self, request: Acquire, history: HistoryLevel | None) -> None:
        """Withdraw an attempt that nobody can come back for, while its caller goes away."""
        self._start(self._withdraw(Withdraw(request.key, request.attempt), request, history))

    async def _withdraw(self, withdraw: Withdraw, request: Acquire, history: HistoryLevel | None) -> None:
        """Ask once. Only what fails is asked again, one after the other."""
        try:
            await self._backend.ask(withdraw, history)
        except errors.StoreError:
            self._withdrawals.add(withdraw, request)

    async def _surely(self, what: Coroutine[Any, Any, None]) -> None:
        """Have something done in a task of its own: whoever was cancelled may be so again."""
        await asyncio.shield(self._start(what))

    def _start(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Streams.

    def stream(
        self, request: Acquire, stream: Stream, manner: Manner, say: Say, place: Place | None = None
    ) -> None:
        """Tell *stream* of the place in the queue, and then of the lock: `acquire`, until the peer leaves.

        *say* makes JSON of an answer or an error. *place* is left when the stream ends.
        """
        with ExitStack() as places:
            if place is not None:
                places.enter_context(place)  # here, where it can still be refused
            listener = _Listener(stream, say, self._settings.heartbeat)
            task = self._start(self._tell(listener, request, manner, places.pop_all()))
        stream.on_gone = task.cancel

    async def _tell(self, listener: _Listener, request: Acquire, manner: Manner, places: ExitStack) -> None:
        stream = listener.stream
        with places:
            places.callback(self._heartbeats.remove, listener.beat)
            self._heartbeats.add(listener.beat)
            try:
                answer = await self._acquire(request, manner, listener.queued)
            except SentAway as sent:
                detail = sse.REVOKED if sent.reason == "revoked" else GOING_AWAY
                stream.end(sse.goodbye(sent.reason, detail))
            except errors.HoldfastError as error:
                stream.end(sse.event("problem", listener.say(error)))
            except Exception:  # noqa: BLE001 - a stream that says nothing would be listened to for ever
                log().exception("waiting for a lock has failed")
                mistake = errors.HoldfastError("the server made a mistake; its log says more")
                stream.end(sse.event("problem", listener.say(mistake)))
            else:
                delivered = stream.send(sse.event(_KINDS[type(answer)], listener.say(answer)))
                if not delivered and not manner.named:
                    await self._surely(self._give_back(answer, request, manner))
                stream.end()

    # The end.

    def drain(self) -> None:
        """Send everybody away who waits. Their tickets live on for a while: they may ask another server."""
        self._draining = True
        for waiter in self._tickets.all():
            waiter.send_away("draining")

    def revoke(self, token_id: str) -> None:
        """Send those away whose access token is not valid any more. They leave the queue."""
        for waiter in self._tickets.all():
            if waiter.principal is not None and waiter.principal.token_id == token_id:
                waiter.send_away("revoked")

    async def close(self) -> None:
        """End what still runs, and see that nothing is left in the store that should not be."""
        self.drain()
        if self._tasks:  # what is undone; a store that hangs does not hear them
            await asyncio.wait(self._tasks, timeout=CLOSE_WITHIN)
        await self._withdrawals.close(CLOSE_WITHIN)
        self._tickets.close()


def _over(request: Acquire, answer: NotHeld | Done | Failed) -> Done:
    """Return, or raise, how an attempt has ended that its caller knows by its name."""
    if isinstance(answer, NotHeld):
        raise errors.NotHeld(request.key, answer.why, detail=ENDED)
    if error := error_for(request, answer):
        raise error
    return cast("Done", answer)


class _Listener:
    """A stream that is told how a waiter moves up."""

    __slots__ = ("_every", "_said", "_said_at", "say", "stream")

    def __init__(self, stream: Stream, say: Say, every: float) -> None:
        self.stream = stream
        self.say = say
        self._every = every
        self._said: Queued | None = None
        self._said_at = 0.0

    def queued(self, queued: Queued, attempt: str) -> None:
        """Tell of the place: at once if it is another one, otherwise not all the time."""
        now = boot_time()
        if self._said is None or self._said.position != queued.position or now - self._said_at >= self._every:
            self._said, self._said_at = queued, now
            self.stream.send(sse.event("queued", self.say(queued)))

    def beat(self) -> None:
        """Say that we are still there."""
        self.stream.send(sse.heartbeat())
