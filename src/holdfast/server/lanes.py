"""A store as a server's event loop asks it: what has come in, and who answers it.

A store that waits for a disk or a network has threads of its own here, as many as it is worth, however many
requests are under way. One that can commit many requests at once (SQLite) gets whatever has come in while it
was busy with the last ones: under load a commit is shared by many, and alone nobody waits for company. Beside
that it has a thread for those who only read: they must not wait while nobody can write.

Where many wait for such a store, the loop answers them itself: to wake a thread, and to share one
interpreter with it, takes as long as their statements do. It does so only if that waits for nobody else,
and while the disk is fast; whoever else is served has to wait for it. A store that never waits (memory) has
no threads, and the loop answers all.

Plain requests that may go together (PostgreSQL), and are not alone, have threads of their own. Those take
what has come in while they were busy, and do not wait for a row that somebody has locked. What they leave is
for the others. So is everything, while a thread of theirs does not come back: its connection may be dead.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from holdfast.core.requests import Acquire, Probe, Release, Request
from holdfast.core.wire import ROUTES
from holdfast.errors import HoldfastError, StoreError, StoreUnavailable
from holdfast.log import log
from holdfast.server.queues import Asked, Group, RequestQueue, Waiting
from holdfast.server.system.metrics import Metrics
from holdfast.stores.base import READS, GroupingStore, Store, Together

A = TypeVar("A", bound=list[Any] | None)

GROUP = 64  # requests in one commit, or one after the other on the loop
MOST_PENDING = 20_000  # requests that wait for the store; more are refused at once
MANY = 4  # requests that the loop answers itself
QUICK = 0.01  # seconds that a group may take, on the average of the last ones, for the loop to do that
REMEMBERED = 16  # as many as count
STUCK = 0.2  # seconds for a group that goes together, before nobody waits for the next one

CLOSE_WITHIN = 5.0  # seconds for what the store still does, all together

_BRIEF = (Acquire, Release)  # about one lock; a list, a batch or a sweep may take the loop's time
_MAKES_EVENTS = frozenset(route.request for route in ROUTES if route.events)


class Lane:
    """One store, and those who wait for it. To be used from one event loop."""

    def __init__(self, store: Store, observer: Metrics | None, wrote: Callable[[], None]) -> None:
        self.store = store
        self._observer = observer
        self._wrote = wrote
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Asked] = deque()  # of whom the loop says when it is their turn
        self._busy = False  # it is the turn of some, or will be in a moment
        self._closed = False
        self._rests = asyncio.Event()  # it is closed, and nobody waits any more
        self._usual = 0.0  # seconds that a group takes
        self._queues: list[RequestQueue] = []  # none for a store that never waits
        self._company: dict[type, RequestQueue] = {}  # for those that may go together
        self._in_company = False  # the last ones of them
        self._looks = False  # at the company, in a moment
        traits = store.traits
        self._takes_turns = traits.groups or not traits.blocking
        if traits.blocking and traits.groups:
            self._queues = [
                RequestQueue(self._answer, 1, GROUP, "holdfast-store", asks_all=True),  # or no turn would end
                RequestQueue(self._answer, 1, GROUP, "holdfast-reads"),
            ]
        elif traits.blocking:
            self._queues = [RequestQueue(self._answer, max(traits.lanes, 1), 1, "holdfast-store")]
        if traits.together:
            # A grant waits for the disk, where others can be on their way; a release does not.
            for kind, threads in ((Acquire, max(traits.lanes // 2, 1)), (Release, 1)):
                self._company[kind] = RequestQueue(self._answer_together, threads, GROUP, "holdfast-company")

    @property
    def pending(self) -> int:
        return len(self._waiting) + sum(map(len, self._all_queues()))

    def _all_queues(self) -> list[RequestQueue]:
        """Return all queues: first those that leave something to others."""
        return [*self._company.values(), *self._queues]

    def ask(self, request: Request[Any]) -> asyncio.Future[Any]:
        """Return the answer, when it is there."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        self.submit(request, answer)
        return answer

    def submit(self, request: Request[Any], waiting: Waiting) -> None:
        """Have *request* answered; *waiting* is told, never before this returns. Raise if too many wait."""
        # How long the queue is says nothing of whether a write works.
        asked, first = (request, waiting), type(request) is Probe
        if self._takes_turns and not (self._queues and type(request) in READS):
            if self._closed or len(self._waiting) >= MOST_PENDING:
                raise _overrun(len(self._waiting))
            if first:
                self._waiting.appendleft(asked)
            else:
                self._waiting.append(asked)
            if not self._busy:
                self._go_on()
            return
        queue = self._queues[-1 if type(request) in READS else 0]
        pending = self.pending if self._company else len(queue)  # who only reads does not wait for writes
        if self._closed or pending >= MOST_PENDING:
            raise _overrun(pending)
        if self._company and self._goes_together(request):
            queue = self._company[type(request)]
            if not self._looks:
                self._look_in(STUCK)
        queue.put(asked, first=first)

    def _goes_together(self, request: Request[Any]) -> bool:
        """Tell whether *request* is for a group. Who is alone does not wait for company, and costs less."""
        may = cast("Together", self.store).may_go_together
        return (
            (self._in_company or any(queue.is_busy for queue in self._all_queues()))
            and may(request)
            and not self._company[type(request)].is_stuck(STUCK)
        )

    def _look_in(self, seconds: float) -> None:
        self._looks = True
        self._loop.call_later(seconds, self._look_at_company)

    def _look_at_company(self) -> None:
        """Have the others answer those who wait for a group that does not come back."""
        self._looks = False
        for queue in self._company.values():
            if queue.is_stuck(STUCK) and (left := queue.take_back()):
                self._leave(left)
        if any(map(len, self._company.values())):
            self._look_in(STUCK / 2)

    async def close(self) -> None:
        """Answer what was asked, and close the store."""
        self._closed = True
        if not self._busy:
            self._rests.set()
        deadline = time.monotonic() + CLOSE_WITHIN
        with suppress(TimeoutError):
            await asyncio.wait_for(self._rests.wait(), CLOSE_WITHIN)
        await asyncio.to_thread(self._close, deadline)

    def _close(self, deadline: float) -> None:
        for queue in self._all_queues():
            queue.close()
            for thread in queue.threads:
                thread.join(timeout=max(deadline - time.monotonic(), 0.0))
        self.store.close()

    # Turns.

    def _go_on(self) -> None:
        """Let the next have their turn, soon: until then others may come in."""
        self._busy = bool(self._waiting)
        if self._busy:
            self._loop.call_soon(self._take_turn)
        elif self._closed:
            self._rests.set()

    def _take_turn(self) -> None:
        """Have those answered who have come in: here, or by the thread."""
        group: Group = []
        while self._waiting and len(group) < GROUP:
            asked = self._waiting.popleft()
            if not asked[1].cancelled():  # whoever asked has gone: nothing was done yet
                group.append(asked)
                if not self._queues and type(asked[0]) not in _BRIEF:  # others are served before the next
                    break
        answers = self._answer_here(group)
        if answers is None:
            self._leave(group)
        else:
            self._end_turn(group, answers)

    def _end_turn(self, group: Group, answers: list[Any]) -> None:
        self._go_on()
        self._deliver(group, answers)

    def _answer_here(self, group: Group) -> list[Any] | None:
        """Answer in the loop's own thread; None: nothing was done, and it is for the thread."""
        if not group:
            return []
        if not self._queues:
            return self._execute(group, self._ask)
        if self._queues[0].closed:  # it took too long to end
            return [_overrun(len(group)) for _ in group]
        if len(group) < MANY or self._usual > QUICK:
            return None
        return self._execute(group, cast("GroupingStore", self.store).try_many)

    # Answers.

    def _answer(self, group: Group) -> None:
        """Answer, in a thread."""
        answers = self._execute(group, self._ask)
        ended = self._end_turn if self._takes_turns and type(group[0][0]) not in READS else self._deliver
        call_from_thread(self._loop, ended, group, answers)

    def _answer_together(self, group: Group) -> None:
        """Answer those that can be without waiting for a row, in a thread; leave the others."""
        self._in_company = len(group) > 1
        first: dict[str, Asked] = {}  # about each key
        for asked in group:
            first.setdefault(cast("Any", asked[0]).key, asked)
        tried = list(first.values())
        answers = self._execute(tried, cast("Together", self.store).try_together, may_leave=True)
        found = {id(one): said for one, said in zip(tried, answers, strict=True) if said is not None}
        done = [asked for asked in group if id(asked) in found]
        call_from_thread(self._loop, self._deliver, done, [found[id(asked)] for asked in done])
        if left := [asked for asked in group if id(asked) not in found]:
            self._leave(left)

    def _leave(self, group: Group) -> None:
        """Leave requests to the ordinary threads. Called from any thread."""
        queue = self._queues[0]
        queue.put(*group)
        if queue.closed and (late := queue.take_back()):  # closing took too long: they may have ended
            ended = self._end_turn if self._takes_turns else self._deliver
            call_from_thread(self._loop, ended, late, [_overrun(len(late)) for _ in late])

    def _ask(self, requests: list[Request[Any]]) -> list[Any]:
        return [self.store.execute(requests[0])] if len(requests) == 1 else self.store.execute_many(requests)

    def _execute(
        self, group: Group, execute: Callable[[list[Request[Any]]], A], *, may_leave: bool = False
    ) -> list[Any] | A:
        """Ask the store for what is wanted. *may_leave*: None is no answer."""
        requests = [request for request, _ in group]
        began = time.perf_counter()
        answers: list[Any] | A
        try:
            answers = execute(requests)
        except HoldfastError as error:
            answers = [copy.copy(error) for _ in requests]  # each collects a traceback, where it is raised
        except Exception as error:  # noqa: BLE001 - a thread that died would leave all who wait for it
            log().exception("the store failed in an unknown way")
            answers = [StoreError(f"the store failed: {type(error).__name__}") for _ in requests]
        if answers is None:
            return answers
        took = time.perf_counter() - began
        if len(requests) >= MANY:
            self._usual += (took - self._usual) / REMEMBERED
        if self._observer is not None:
            self._note(requests, answers, took, may_leave)
        return answers

    def _note(self, requests: list[Request[Any]], answers: list[Any], took: float, may_leave: bool) -> None:
        """Have it noted what was answered at once. What was left will be answered by others."""
        if may_leave:
            answered = [pair for pair in zip(requests, answers, strict=True) if pair[1] is not None]
            requests, answers = [request for request, _ in answered], [answer for _, answer in answered]
        if requests:
            cast("Metrics", self._observer).group_answered(requests, answers, took)

    def _deliver(self, group: Group, answers: list[Any]) -> None:
        wrote = False
        for (request, waiting), answer in zip(group, answers, strict=True):
            failed = isinstance(answer, HoldfastError)
            wrote = wrote or (type(request) in _MAKES_EVENTS and not failed)
            if self._observer is not None and not failed:
                self._observer.observe_answer(request, answer)
            if waiting.done():  # cancelled: whoever asked has gone
                continue
            if failed:
                answer.from_store = True  # what it says is for the log: it names hosts, files and statements
                waiting.set_exception(answer)
            else:
                waiting.set_result(answer)
        if wrote:
            self._wrote()


def call_from_thread(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    """Call something in the loop's thread, from any thread. A loop that is gone has nobody to tell."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)


def _overrun(waiting: int) -> StoreUnavailable:
    return StoreUnavailable(f"{waiting} requests wait for the store already; try again later")
