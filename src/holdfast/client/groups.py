"""Plain requests of several tasks, asked together while the store is busy with the last ones.

A task that is alone does not wait for company: its request is asked at once and by itself, as all others are.
Requests that come while some are under way wait until a lane is free, and then share one round trip and one
commit. What the store cannot answer like that is asked by itself, and holds up nobody. Nor does a group that
does not come back, because its connection is dead.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from holdfast import errors
from holdfast.core.requests import Request
from holdfast.stores.base import Store, Together, failure

LANES = 2  # groups under way: one is being committed while the next is made
MOST = 64  # requests in a group
STUCK = 0.2  # seconds for a group, before it takes no lane any more

Asked = tuple[Request[Any], "asyncio.Future[Any]"]


class Groups:
    """See the module. For one event loop. *start* has something done in a thread.

    An interrupt can hit between any two steps, and the loop may go on after it. So nothing is counted: what
    is under way is asked whether it is done, and whenever a task asks, all that wait are looked at again.
    """

    def __init__(self, store: Store, start: Callable[..., asyncio.Future[Any]]) -> None:
        self.loop = asyncio.get_running_loop()
        self._execute = store.execute
        self._try_together = cast("Together", store).try_together
        self._start = start
        self._process = os.getpid()
        self._waiting: list[Asked] = []
        self._groups: list[tuple[asyncio.Future[Any], float]] = []  # under way, since when, or done just now
        self._look_at = 0.0  # whether a lane is free
        self._alone: asyncio.Future[Any] | None = None  # as well; it may wait for a row, and takes no lane
        self._in_company = False  # the last ones that were asked

    def ask(self, request: Request[Any]) -> asyncio.Future[Any]:
        """Have *request* answered: one that `may_go_together`."""
        if not (self._in_company or self._waiting or self._is_busy()):
            self._alone = self._start(self._execute, request)
            return self._alone
        answer: asyncio.Future[Any] = self.loop.create_future()
        self._waiting.append((request, answer))
        self.loop.call_soon(self._send)  # after the tasks that are about to ask as well
        return answer

    def _is_busy(self) -> bool:
        return self._lanes_taken() > 0 or (self._alone is not None and not self._alone.done())

    def _lanes_taken(self) -> int:
        stuck = self.loop.time() - STUCK
        self._groups = [group for group in self._groups if not group[0].done() and group[1] > stuck]
        return len(self._groups)

    def _send(self) -> None:
        """Ask what waits, as soon as a lane is free."""
        if not self._waiting or os.getpid() != self._process:
            return  # in a forked child they are the parent's
        if self._lanes_taken() < LANES:
            self._send_group()
        if self._waiting and self.loop.time() >= self._look_at:
            # A group that comes back has us look again; but perhaps none does.
            self._look_at = self._groups[0][1] + STUCK
            self.loop.call_at(self._look_at + 0.001, self._send)  # not a tick too early

    def _send_group(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            group: dict[str, Asked] = {}
            for asked in waiting:
                request, answer = asked
                if answer.done():  # its task was cancelled, and nothing was done yet
                    continue
                if len(group) == MOST or group.setdefault(request.key, asked) is not asked:  # type: ignore[attr-defined]
                    self._waiting.append(asked)
            self._in_company = len(group) > 1
            if chosen := list(group.values()):
                begun = self._start(self._try_together, [request for request, _ in chosen])
                self._groups.append((begun, self.loop.time()))
                begun.add_done_callback(partial(self._deliver, chosen))
        except BaseException as error:
            _give_up(waiting, error)
            raise

    def _deliver(self, group: list[Asked], begun: asyncio.Future[Any]) -> None:
        try:
            error = begun.exception()
            answers = begun.result() if error is None else [failure(error) for _ in group]  # type: ignore[arg-type]
            for (request, answer), found in zip(group, answers, strict=True):
                if found is not None:
                    _settle(answer, found)
                elif not answer.done():
                    begun = self._start(self._execute, request)
                    begun.add_done_callback(partial(_pass_on, answer))
            self._send()
        except BaseException as error:
            _give_up(group, error)
            raise


def _pass_on(answer: asyncio.Future[Any], begun: asyncio.Future[Any]) -> None:
    _settle(answer, begun.exception() or begun.result())


def _settle(answer: asyncio.Future[Any], found: Any) -> None:
    if answer.done():  # cancelled: its task has gone
        return
    if isinstance(found, BaseException):
        answer.set_exception(found)
    else:
        answer.set_result(found)


def _give_up(group: list[Asked], error: BaseException) -> None:
    """Let no task wait for ever: an interrupt has hit, or the program is ending, and there are no threads."""
    for _, answer in group:
        _settle(answer, errors.OutcomeUnknown(f"there is no answer: {error!r}"))
