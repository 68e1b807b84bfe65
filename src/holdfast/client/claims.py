"""How callers are given work that is offered: claiming at once, and waiting for it.

The same for threads and tasks. Several may want work of one instance: one of them asks the store for all, and
what it gets is given to any of them. See `workload` for who may call what.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from holdfast import errors
from holdfast.client.assignments import WorkHolding
from holdfast.client.engine import Engine
from holdfast.client.keeper_thread import RETURNED
from holdfast.client.options import whole
from holdfast.client.workload import ASKER, Workload
from holdfast.clock import boot_time
from holdfast.core import cluster_plans as plans
from holdfast.core import keys
from holdfast.core.cluster import Beat, Claim, Finish, work_type
from holdfast.core.plans import TRANSIENT, Plan, Wait
from holdfast.core.settings import Seconds, seconds

A = TypeVar("A")

MOST_TYPES = 100  # in one claim
_TYPES = "the type of 'workflow:123' is 'workflow', that of 'plain' is ''"


def check_types(types: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the types of work that are asked for, each once."""
    if not types:
        raise errors.SettingsError(f"say which types of work to claim: {_TYPES}")
    for each in types:
        if not isinstance(each, str) or ":" in each:
            raise errors.SettingsError(f"{each!r} is no type of work: {_TYPES}")
        if each:
            keys.validate(each)
    if len(types) > MOST_TYPES:
        raise errors.SettingsError(f"{len(types)} types of work are more than the {MOST_TYPES} of one claim")
    return tuple(dict.fromkeys(types))


class Claimant(Generic[A]):
    """A caller that wants work, and what it was given."""

    def __init__(self, workload: Workload[A], types: tuple[str, ...], batch: int | None = None) -> None:
        self.taken: list[WorkHolding[A]] = []
        self._workload = workload
        self._types = types
        self._batch = batch
        self._me = workload.engine.attempts.new()  # to be woken by

    def claim(self, limit: int | None) -> Plan[list[A]]:
        """Claim at once, and return what was claimed. A plan."""
        load = self._workload
        most = None if limit is None else whole(limit, "limit")
        load.check()
        deadline = boot_time() + load.engine.settings.release_timeout
        try:
            load.begin_waiting(self._me, self._types, 0)
            self.take_ready(most)
            while not self.taken:
                request = self._begin_asking(self._types, most, now=math.inf)
                if request is not None:
                    yield from self._ask(request, lambda: deadline)
                    self.take_ready(most)
                    break
                if not load.asker:
                    break  # no room, or no more work for us
                yield Wait("", self._me, None)
                self.take_ready(most)
        finally:
            load.stop_waiting(self._me)
        # An earlier claim whose answer was lost may have got more, or other work, than is wanted now.
        yield from load.give_back_unwanted()
        return [work.face for work in self.taken]

    def wait(self, timeout: float | None) -> Plan[None]:
        """Wait for one assignment, and take it; nothing, if there will be none. A plan."""
        load, member = self._workload, self._workload.member
        deadline = math.inf if timeout is None else boot_time() + timeout
        asked = False
        try:
            load.begin_waiting(self._me, self._types, self._batch)
            while True:
                load.check_not_lost()
                self.take_ready(1)
                if self.taken:
                    return
                now = boot_time()
                if not member.takes_work or (asked and now >= deadline):
                    return
                # At the deadline we ask once more, or for the first time.
                types, many = self._all_wanted()
                request = self._begin_asking(types, many, now=math.inf if now >= deadline else now)
                if request is not None:
                    asked = True
                    try:
                        yield from self._ask(request, lambda: min(deadline, member.trusted_until))
                    except TRANSIENT:
                        if deadline <= member.trusted_until:
                            raise
                        yield Wait("", self._me, member.trusted_until)  # nothing else will become of us
                    continue
                if now >= deadline and not load.asker:
                    return  # no room
                until = min(self._ask_at(types), member.trusted_until)
                yield Wait("", self._me, until if now >= deadline else min(until, deadline))
        finally:
            load.stop_waiting(self._me)

    def take_ready(self, limit: int | None) -> None:
        """Take assignments that were claimed ahead."""
        ready = self._workload.ready
        for attempt, work in list(ready.items()):
            if limit is not None and len(self.taken) >= limit:
                return
            if work_type(work.key) in self._types:
                self.taken.append(work)  # first: an interrupt that hits in between finds it there
                if ready.pop(attempt, None) is None:
                    self.taken.pop()  # another thread was faster

    def _all_wanted(self) -> tuple[tuple[str, ...], int | None]:
        """Return what all claimants want, and how much: the store remembers only what was asked last."""
        waiting = list(self._workload.waiting.values())
        batches = [batch for _, batch in waiting]
        wanted = tuple(
            dict.fromkeys([*self._types, *(each for some, batch in waiting if batch != 0 for each in some)])
        )
        return wanted, None if None in batches else sum(batch for batch in batches if batch)

    def _begin_asking(self, types: tuple[str, ...], limit: int | None, *, now: float) -> Claim | None:
        """Return what to ask the store, if it is time; its caller has to ask. One asks at a time."""
        load = self._workload
        room = load.capacity - len(load.works)
        if limit is not None:
            room = min(room, limit)
        if room <= 0 or not load.member.takes_work or load.demand.due_at(types, room) > now:
            return None
        if load.asker.setdefault(ASKER, self._me) != self._me:
            return None
        return load.demand.next(types, room, attempt=load.engine.attempts.new(), ttl=load.ttl)

    def _ask_at(self, types: tuple[str, ...]) -> float:
        """Return when to ask, if nothing is heard before. One that asks now wakes us."""
        load = self._workload
        return math.inf if load.asker else load.demand.due_at(types, load.capacity - len(load.works))

    def _ask(self, request: Claim, until: Callable[[], float]) -> Plan[None]:
        """Claim; what was claimed is ready then."""
        load = self._workload
        try:
            answer = yield from plans.claim(
                load.demand, request, known=load.works, until=until, **load.engine.how()
            )
            if isinstance(answer.said, Beat):
                if load.member.told(answer.said):
                    load.engine.keeper.tell_gone(load.member)
            else:
                self._accept(request, answer)
        finally:
            load.stop_asking()

    def _accept(self, request: Claim, answer: plans.Answer) -> None:
        load = self._workload
        for given in answer.said.works:
            if given.attempt in load.works:
                continue  # we were told of it before
            task = plans.claimed_task(given, request, asked=answer.asked, settings=load.engine.settings)
            if load.member.takes_work and boot_time() < task.grant.trusted_until:
                load.take_on(task, ready=True)
            else:  # we have left meanwhile, or it took too long to be trusted
                load.engine.keeper.ask_soon(Finish(given.key, given.attempt, given.token, "returned"))
        load.demand.answered(request, answer.said, now=boot_time())

    # Undoing it.

    def undo(self) -> None:
        """Give back what nobody has, after an interrupt that hit where no plan hears of it. It blocks."""
        self._workload.stop_waiting(self._me)
        for work in self.taken:
            work.forget()
        self._undo_asking()
        self._workload.return_unwanted()

    def _undo_asking(self) -> None:
        """Give back what an interrupted claim has got. If another thread asks, that is its to take."""
        load = self._workload
        if load.asker.setdefault(ASKER, self._me) != self._me:
            return
        try:
            if (unsure := load.demand.unsure) is not None:
                load.give_back_unknown(plans.undo_claim(load.demand, load.works), unsure.attempt)
        finally:
            load.stop_asking()

    def return_soon(self) -> None:
        """Have the keeper return what was taken: the task that wanted it was cancelled."""
        for work in self.taken:
            if self._workload.engine.attempts.made(work.attempt):  # otherwise it is the forking parent's
                work.lose(RETURNED)
                work.return_soon()


class BaseClaims(Generic[A]):
    """Work as it comes. *by*: the instance that claims it, to be shown."""

    def __init__(
        self,
        engine: Engine,
        workload: Workload[A],
        by: object,
        types: tuple[str, ...],
        batch: int | None,
        timeout: Seconds | None,
    ) -> None:
        self._engine = engine
        self._workload = workload
        self._by = by
        self._types = check_types(types)
        self._batch = None if batch is None else whole(batch, "batch")
        self._timeout = None if timeout is None else seconds(timeout, "timeout")
        self._open = True
        workload.iterating.append(self._types)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(map(repr, self._types))} by {self._by!r}>"

    def _claimant(self) -> Claimant[A]:
        return Claimant(self._workload, self._types, self._batch)

    def _stop(self) -> bool:
        was_open, self._open = self._open, False
        if was_open:
            with suppress(ValueError):
                self._workload.iterating.remove(self._types)
        return was_open

    def __del__(self) -> None:
        with suppress(Exception):  # it was not made, or the interpreter is ending
            if self._stop() and self._workload.ready:
                self._engine.keeper.do_soon(self._workload.return_unwanted, finalizing=True)
