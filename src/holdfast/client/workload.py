"""An instance that this process is: joining, draining, leaving, being lost, and the work that it has.

The same for threads and tasks. Methods that return generators are plans, which an engine runs. Everything
else may be called from any thread, and waits for nothing. There is no mutex: an interrupt that hits where one
is taken or given back would leave it taken. Threads share dictionaries, and each step changes one entry.
How it asks for work is in `claims`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from holdfast import errors, identity
from holdfast.client.assignments import WorkHolding, check_retry
from holdfast.client.engine import Engine
from holdfast.client.keeper_thread import DRAINED, LEFT, RETURNED
from holdfast.client.operations import as_json
from holdfast.client.options import Retry, whole
from holdfast.clock import boot_time
from holdfast.core import cluster_plans as plans
from holdfast.core import keys, membership, refusals
from holdfast.core.cluster import Assign, Join, Leave, work_type
from holdfast.core.demand import Demand
from holdfast.core.keeper import INSTANCE_LOST
from holdfast.core.plans import TRANSIENT, Abandoned, Plan, Wait
from holdfast.core.requests import Request, Signal
from holdfast.core.settings import Seconds, seconds
from holdfast.log import log

A = TypeVar("A")

ASKER = "asker"

_STRANGE = re.compile(r"[^\w.-]+", re.ASCII)


class Workload(Generic[A]):
    """The state of an instance. *make* makes the state of work that is assigned to it."""

    def __init__(
        self,
        engine: Engine,
        make: Callable[..., WorkHolding[A]],
        name: str | None,
        capacity: int,
        heartbeat: Seconds,
        ttl: Seconds,
        version: str,
        spread: Seconds,
        retry: Retry,
    ) -> None:
        engine.check_open()
        self.engine = engine
        self.request, self.member = _join_request(engine, name, capacity, heartbeat, ttl, version)
        self.id, self.capacity = self.request.id, self.request.capacity
        self.member.tell = self.gone
        self.demand = Demand(
            self.member,
            capacity=self.capacity,
            spread=seconds(spread, "spread"),
            settings=engine.settings,
            roll=random.random,
        )
        if not engine.store.traits.signals:
            self.demand.look_again = engine.settings.heartbeat
        self.works: dict[str, WorkHolding[A]] = {}  # by attempt
        self.ready: dict[str, WorkHolding[A]] = {}  # those of them that nobody has been given yet
        self.waiting: dict[str, tuple[tuple[str, ...], int | None]] = {}  # → types, and how many at once
        self.iterating: list[tuple[str, ...]] = []  # the types that somebody claims in a loop
        self.asker: dict[str, str] = {}  # the one that has asked for work, and waits for the answer
        self._make = make
        self._retry = check_retry(retry)  # of work that has failed in a block

    @property
    def lost(self) -> errors.InstanceLost | None:
        """Why it is not part of the cluster any more, if it is lost."""
        return self.member.loss(boot_time())

    @property
    def ttl(self) -> float:
        """How long a lease of ours holds without renewal: as long as we are believed without a heartbeat."""
        most = self.engine.settings.max_hold
        return self.member.ttl if most is None else min(self.member.ttl, most)

    def check(self) -> None:
        """Raise `InstanceLost` if it is lost or has left."""
        self.check_not_lost()
        if self.member.state == "left":
            raise errors.InstanceLost(self.id, refusals.LEFT)

    def check_not_lost(self) -> None:
        """Raise `InstanceLost` if it is lost."""
        if lost := self.lost:
            raise errors.InstanceLost(lost.id, lost.reason)

    def all_works(self) -> tuple[WorkHolding[A], ...]:
        """Return the work that it has at this moment."""
        return tuple(self.works.values())

    # Joining and leaving.

    def join(self) -> Plan[None]:
        """Become an instance."""
        answer = yield from plans.join(self.request, **self.engine.how())
        self.member.answered(answer.said, asked=answer.asked)
        self.engine.members[self.id] = self
        self.engine.keeper.join(self.member)

    def drain(self, timeout: Seconds) -> Plan[None]:
        """Take no more work; wait at most *timeout* for what is being done, then return the rest."""
        deadline = boot_time() + seconds(timeout, "timeout")
        self.check()
        self.member.draining = True  # whatever the store says: every heartbeat tells it so from now on
        self.ring()
        with suppress(*TRANSIENT):
            answer = yield from self._persist(self.member.request())
            if self.member.answered(answer.said, asked=answer.asked):
                self.engine.keeper.tell_gone(self.member)
        self.check()
        yield from self.give_back(list(self.ready.values()), DRAINED)
        yield from self._wait_until_idle(deadline)
        yield from self.give_back(self.all_works(), DRAINED)

    def _wait_until_idle(self, deadline: float) -> Plan[None]:
        me = self.engine.attempts.new()
        try:
            self.begin_waiting(me, (), 0)
            while self.works and boot_time() < deadline:
                yield Wait("", me, deadline)
        finally:
            self.stop_waiting(me)

    def leave(self) -> Plan[None]:
        """Stop being an instance. What is still assigned to it is lost."""
        if self.member.state in ("left", "dead"):
            return
        self.member.draining = True
        self._part()
        self.member.leave()  # now: a heartbeat or a claim may be under way, and be told so before we are
        try:
            yield from self._persist(Leave(self.id))
        except Abandoned:
            yield from plans.quietly(Leave(self.id))
            raise
        finally:
            self.has_left()

    def leave_at_once(self) -> None:
        """Leave without a word, after an interrupt. It blocks."""
        if self.member.lost is not None:
            return  # that has been seen to; or we are a forked child, and it is the parent's
        self._part()
        self.has_left()
        self.engine.run_quietly(plans.quietly(Leave(self.id)))

    def _part(self) -> None:
        self.engine.keeper.part(self.id)
        for work in self.all_works():  # before it is given back: nobody may trust what is not ours any more
            work.lose(LEFT)

    def gone(self) -> None:
        """Lose everything with the membership. Called once."""
        lost = self.member.lost
        assert lost is not None
        for work in self.all_works():
            work.lose(INSTANCE_LOST, lost.reason)
        self.engine.members.pop(self.id, None)
        self.engine.keeper.ask_soon(Leave(self.id))  # the dead return their work like this, too
        self.ring()

    def refused(self, reason: str) -> None:
        """Take in why we were not given work."""
        if reason == refusals.DRAINING:
            self.member.draining = True
            self.ring()
        elif self.member.lose(reason):
            self.engine.keeper.tell_gone(self.member)

    def _persist(self, request: Request[Any]) -> Plan[plans.Answer]:
        deadline = boot_time() + self.engine.settings.release_timeout
        return plans.persistently(request, until=lambda: deadline, **self.engine.how())

    # For the engine: see its `Member`.

    def on_signal(self, signal: Signal) -> None:
        """Take in that there is work."""
        self.demand.signalled(signal.key)
        self.ring()

    def last_request(self) -> Request[Any]:
        """Return what to ask the store when the client closes."""
        return Leave(self.id)

    def stop_taking(self) -> None:
        """Take no more work. Nobody is told."""
        self.member.draining = True

    def has_left(self) -> None:
        """Stop being an instance, as far as this process is concerned."""
        self.member.leave()
        self.engine.members.pop(self.id, None)
        self.drop_unknown()
        self.ready.clear()
        self.ring()

    def forked(self) -> None:
        """Stop being an instance in a forked child: it is the parent's."""
        self.member.tell = None
        self.member.lose(f"forked: process {self.member.client.pid} has joined, not its child")
        for each in (self.works, self.ready, self.waiting, self.asker):
            each.clear()

    # One piece of work, by its key.

    def assignment(self, key: str, data: Any, ttl: Seconds | None, again: bool) -> Assign:
        """Check what is to be assigned, and put it into a request."""
        self.check()
        return Assign(
            key=keys.validate(key),
            attempt=self.engine.attempts.new(),
            owner=self.id,
            ttl=self.ttl if ttl is None else self.engine.settings.check_ttl(ttl),
            client=self.member.client,
            id=self.id,
            data=None if data is None else as_json(key, data, "data"),
            again=again,
        )

    def assign(self, request: Assign) -> Plan[A]:
        """Take it."""
        repeats = self.engine.store.traits.repeats
        try:
            task = yield from plans.assign(request, retire=repeats, **self.engine.how())
        except errors.InstanceLost as lost:
            self.refused(lost.reason)
            raise
        return self.take_on(task).face

    def undo_assign(self, request: Assign) -> None:
        """Give it back, after an interrupt that hit where no plan hears of it: nobody has what it got."""
        if work := self.works.get(request.attempt):
            work.forget()
        else:
            self.give_back_unknown(plans.undo_assign(request), request.attempt)

    # Having work.

    def take_on(self, task: plans.Task, *, ready: bool = False) -> WorkHolding[A]:
        """Take an assignment into care."""
        work = self._make(self.engine, task, self.member, retry=self._retry, ended=self._has_ended)
        if ready:
            self.ready[work.attempt] = work
        self.works[work.attempt] = work  # last: from now on it is known, and can be found
        if not self.member.takes_work:  # since we asked: the code that gave back the others missed this one
            work.lose(*self._why_over())
            work.return_soon()
        return work

    def _why_over(self) -> tuple[str, str | None]:
        if self.member.lost is not None:
            return INSTANCE_LOST, self.member.lost.reason
        return LEFT if self.member.state == "left" else DRAINED, None

    def _has_ended(self, work: WorkHolding[A]) -> None:
        """Have room for one more."""
        self.ready.pop(work.attempt, None)
        if self.works.pop(work.attempt, None) is not None:
            self.demand.made_room(boot_time())
            self.ring()

    # Giving work back.

    def give_back(self, works: Sequence[WorkHolding[A]], reason: str) -> Plan[None]:
        """Give some work back; others are offered it at once."""
        for work in works:
            work.lose(reason)
        for work in works:
            try:
                yield from plans.finish(work.request("returned"), **self.engine.how())
            except errors.StoreError as error:
                log().warning("could not return %r, which ends by itself: %s", work.key, error)

    def unwanted(self) -> list[WorkHolding[A]]:
        """Take out what was claimed ahead for callers who do not want it any more, and return it."""
        waiting = [types for types, _ in list(self.waiting.values())]
        wanted = {type for types in [*self.iterating, *waiting] for type in types}
        return [
            work
            for attempt, work in list(self.ready.items())
            # The thread that takes it out of there has it: another may be about to be given it after all.
            if work_type(work.key) not in wanted and self.ready.pop(attempt, None) is not None
        ]

    def give_back_unwanted(self) -> Plan[None]:
        """Give that back."""
        return self.give_back(self.unwanted(), RETURNED)

    def return_unwanted(self) -> None:
        """Give that back without a word. It blocks: it is for the keeper's thread, and after interrupts."""
        for work in self.unwanted():
            work.lose(RETURNED)
            work.return_quietly()

    def give_back_unknown(self, plan: Plan[None], attempt: str) -> None:
        """Have a plan undo what an interrupted one has done, and stop renewing what nobody knows of."""
        self.engine.run_quietly(plan)
        self.drop_unknown(attempt)

    def drop_unknown(self, attempt: str = "") -> None:
        """Stop renewing what begins with this attempt. Other threads may be about to make the rest known."""
        for kept in self.engine.keeper.kept():
            grant = kept.grant
            is_meant = grant.owner == self.id and grant.attempt.startswith(attempt)
            if is_meant and grant.attempt not in self.works:
                self.engine.keeper.drop(grant.attempt)
                self.ready.pop(grant.attempt, None)

    # Waiting for work, or for its end.

    def begin_waiting(self, me: str, types: tuple[str, ...], batch: int | None) -> None:
        """Have somebody be woken from now on."""
        self.engine.mailboxes[me] = "", self.engine.new_mailbox()
        self.waiting[me] = types, batch

    def stop_waiting(self, me: str) -> None:
        """Have nobody be woken any more."""
        self.waiting.pop(me, None)
        self.engine.mailboxes.pop(me, None)
        if self.asker.get(ASKER) == me:  # an interrupt has hit before we could ask
            self.stop_asking()

    def stop_asking(self) -> None:
        """Let somebody else ask for work."""
        self.asker.clear()
        self.ring()

    def ring(self) -> None:
        """Wake all that wait, to look again."""
        for me in list(self.waiting):
            if found := self.engine.mailboxes.get(me):
                found[1].put(Signal("work", "", me))


def _join_request(
    engine: Engine, name: str | None, capacity: int, heartbeat: Seconds, ttl: Seconds, version: str
) -> tuple[Join, membership.Membership]:
    """Check how a caller wants to join."""
    beat, length = membership.check_timing(heartbeat, ttl, engine.settings)
    shown = identity.program() if name is None else identity.check_name(name, "name")
    if version != "":
        identity.check_name(version, "version")
    # A part of urls and keys, and for people to read.
    id = identity.new_owner(_STRANGE.sub("-", shown).strip("-.") or "instance")
    me = engine.client
    request = Join(
        id=id, name=shown, client=me, capacity=whole(capacity, "capacity"), ttl=length, version=version
    )
    member = membership.Membership(
        id, me, ttl=length, heartbeat=beat, settings=engine.settings, roll=random.random
    )
    return request, member
