"""How an instance takes work, keeps it and gives it back: the same for threads and tasks.

Its methods that return generators are plans: the clients run them. Everything else may be called from any
thread, and waits for nothing. There is no mutex: an interrupt that hits where one is taken or given back
would leave it taken. What threads share are dictionaries, and each step changes one entry.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast import errors
from holdfast.clock import boot_time
from holdfast.cluster.assignments import BaseAssignment
from holdfast.cluster.options import Retry, as_json
from holdfast.core import cluster_plans as plans
from holdfast.core import keys, membership
from holdfast.core.claiming import Claiming
from holdfast.core.cluster import Assign, Beat, Claim, Finish, Join, work_type
from holdfast.core.keeper import INSTANCE_LOST, Kept
from holdfast.core.membership import Membership
from holdfast.core.plans import TRANSIENT, Plan, Wait
from holdfast.core.requests import Acquire, Request, Signal
from holdfast.core.settings import Seconds
from holdfast.keeping import DRAINED, LEFT, RETURNED
from holdfast.log import log

if TYPE_CHECKING:
    from holdfast.client import BaseClient, Wish

A = TypeVar("A", bound=BaseAssignment)

_ASKER = "asker"


class Taking(Generic[A]):
    """The work of an instance."""

    def __init__(
        self, client: BaseClient, joining: tuple[Join, Membership], *, spread: float, retry: Retry
    ) -> None:
        self._client = client
        self._join, self._member = joining
        self._claiming = Claiming(
            self._member,
            capacity=self._join.capacity,
            spread=spread,
            settings=client.settings,
            roll=random.random,
        )
        if not client._store.traits.signals:  # noqa: SLF001
            self._claiming.look_again = client.settings.heartbeat
        self.retry = retry  # of work that has failed in a block
        self._assignments: dict[str, A] = {}  # by attempt
        self._ready: dict[str, A] = {}  # those of them that nobody has been given yet
        self._waiting: dict[str, tuple[tuple[str, ...], int | None]] = {}  # → types, and how many at once
        self._iterating: list[tuple[str, ...]] = []  # the types that somebody claims in a loop
        self._asker: dict[str, str] = {}  # who has asked for work, and waits for the answer

    @property
    def id(self) -> str:
        """The id that it has joined with. It is the owner of what is assigned to it."""
        return self._join.id

    @property
    def capacity(self) -> int:
        """How much work it can have at a time."""
        return self._join.capacity

    @property
    def lost(self) -> errors.InstanceLost | None:
        """Why it is not part of the cluster any more, if it is lost."""
        return self._member.loss(boot_time())

    @property
    def assignments(self) -> tuple[A, ...]:
        """The work that it has at this moment."""
        return tuple(self._assignments.values())

    def check(self) -> None:
        """Raise `InstanceLost` if it is lost or has left."""
        if lost := self.lost:
            raise errors.InstanceLost(lost.id, lost.reason)
        if self._member.state == "left":
            raise errors.InstanceLost(self.id, membership.LEFT)

    # One piece of work, by its key.

    def _assignment(self, key: str, data: Any, ttl: Seconds | None, again: bool) -> Assign:
        """Check what is to be assigned, and put it into a request."""
        self.check()
        return Assign(
            key=keys.validate(key),
            attempt=self._client._attempts.new(),  # noqa: SLF001
            owner=self.id,
            ttl=self._ttl if ttl is None else self._client.settings.check_ttl(ttl),
            client=self._member.client,
            id=self.id,
            data=None if data is None else as_json(key, data, "data"),
            again=again,
        )

    def _assigning(self, request: Assign) -> Generator[Any, Any, A]:
        repeats = self._client._store.traits.repeats  # noqa: SLF001
        try:
            task = yield from plans.assign(request, retire=repeats, **self._how())
        except errors.InstanceLost as lost:
            self._refused(lost.reason)
            raise
        return self._take_on(task)

    # Claiming.

    def _claiming_now(
        self, me: str, types: tuple[str, ...], limit: int | None, taken: list[A]
    ) -> Generator[Any, Any, None]:
        """Claim at once, and put what was claimed into *taken*. *me*: an id to be woken by."""
        self.check()
        deadline = boot_time() + self._client.settings.release_timeout
        try:
            self._begin_waiting(me, types, 0)
            self._take_ready(types, limit, taken)
            while not taken:
                request = self._begin_asking(me, types, limit, now=math.inf)
                if request is not None:
                    yield from self._ask(request, lambda: deadline)
                    self._take_ready(types, limit, taken)
                    break
                if not self._asker:
                    break  # no room, or no more work for us
                yield Wait("", me, None)
                self._take_ready(types, limit, taken)
        finally:
            self._stop_waiting(me)
        # An earlier claim whose answer was lost may have got more, or other work, than is wanted now.
        yield from self._returning(self._unwanted(), RETURNED)

    def _next(
        self, me: str, types: tuple[str, ...], batch: int | None, timeout: float | None, taken: list[A]
    ) -> Generator[Any, Any, None]:
        """Wait for an assignment, and put it into *taken*; nothing, if there will be none."""
        deadline = math.inf if timeout is None else boot_time() + timeout
        asked = False
        try:
            self._begin_waiting(me, types, batch)
            while True:
                if lost := self.lost:
                    raise errors.InstanceLost(lost.id, lost.reason)
                self._take_ready(types, 1, taken)
                if taken:
                    return
                now = boot_time()
                if not self._member.takes_work or (asked and now >= deadline):
                    return
                # At the deadline we ask once more, or for the first time.
                types_, many = self._wanted(types)
                request = self._begin_asking(me, types_, many, now=math.inf if now >= deadline else now)
                if request is not None:
                    asked = True
                    try:
                        yield from self._ask(request, lambda: min(deadline, self._member.trusted_until))
                    except TRANSIENT:
                        if deadline <= self._member.trusted_until:
                            raise
                        yield Wait("", me, self._member.trusted_until)  # nothing else will become of us
                    continue
                if now >= deadline and not self._asker:
                    return  # no room
                until = min(self._ask_at(types_), self._member.trusted_until)
                yield Wait("", me, until if now >= deadline else min(until, deadline))
        finally:
            self._stop_waiting(me)

    def _wanted(self, types: tuple[str, ...]) -> tuple[tuple[str, ...], int | None]:
        """Return what all who wait want, and how much of it: the store remembers only what was asked last."""
        waiting = list(self._waiting.values())
        batches = [batch for _, batch in waiting]
        wanted = tuple(
            dict.fromkeys([*types, *(each for some, batch in waiting if batch != 0 for each in some)])
        )
        return wanted, None if None in batches else sum(batch for batch in batches if batch)

    def _begin_asking(
        self, me: str, types: tuple[str, ...], limit: int | None, *, now: float
    ) -> Claim | None:
        """Return what to ask the store, if it is time; who gets it has to ask. One asks at a time."""
        room = self.capacity - len(self._assignments)
        if limit is not None:
            room = min(room, limit)
        if room <= 0 or not self._member.takes_work or self._claiming.due_at(types, room) > now:
            return None
        if self._asker.setdefault(_ASKER, me) != me:
            return None
        attempt = self._client._attempts.new()  # noqa: SLF001
        return self._claiming.next(types, room, attempt=attempt, ttl=self._ttl)

    def _ask_at(self, types: tuple[str, ...]) -> float:
        """Return when to ask, if nothing is heard before. Whoever asks now wakes us."""
        if self._asker:
            return math.inf
        return self._claiming.due_at(types, self.capacity - len(self._assignments))

    def _ask(self, request: Claim, until: Any) -> Generator[Any, Any, None]:
        """Claim; what was claimed is ready then."""
        try:
            answer = yield from plans.claim(
                self._claiming, request, known=self._assignments, until=until, **self._how()
            )
            if isinstance(answer.said, Beat):
                if self._member.told(answer.said):
                    self._client._keeping.tell_gone(self._member)  # noqa: SLF001
            else:
                self._accept(request, answer)
        finally:
            self._asker.clear()
            self._ring()

    def _accept(self, request: Claim, answer: plans.Answer) -> None:
        for work in answer.said.works:
            if work.attempt in self._assignments:
                continue  # we were told of it before
            task = plans.claimed_task(work, request, asked=answer.asked, settings=self._client.settings)
            if self._member.takes_work and boot_time() < task.grant.trusted_until:
                self._take_on(task, ready=True)
            else:  # we have left meanwhile, or it took too long to be trusted
                returned = Finish(work.key, work.attempt, work.token, "returned")
                self._client._keeping.ask_soon(returned)  # noqa: SLF001
        self._claiming.answered(request, answer.said, now=boot_time())

    # Having it.

    def _take_on(self, task: plans.Task, *, ready: bool = False) -> A:
        """Take an assignment into care."""
        client, grant = self._client, task.grant
        asked = grant.trusted_until - grant.ttl + client.settings.margin_for(grant.ttl)
        kept = client._keeping.keep(  # noqa: SLF001
            grant, asked=asked, max_hold=client.settings.max_hold, renew=True
        )
        kept.member = self._member
        assignment = self._make(task, kept)
        if ready:
            self._ready[grant.attempt] = assignment
        self._assignments[grant.attempt] = assignment  # last: from now on it is known, and can be found
        if not self._member.takes_work:  # since we asked: whoever gave back the others did not know of it
            assignment._lose(*self._why_over())  # noqa: SLF001
            client._keeping.ask_soon(assignment._request("returned"))  # noqa: SLF001
        return assignment

    def _why_over(self) -> tuple[str, str | None]:
        if self._member.lost is not None:
            return INSTANCE_LOST, self._member.lost.reason
        return LEFT if self._member.state == "left" else DRAINED, None

    def _make(self, task: plans.Task, kept: Kept) -> A:
        raise NotImplementedError

    def _take_ready(self, types: tuple[str, ...], limit: int | None, taken: list[A]) -> None:
        """Give out assignments that were claimed ahead."""
        for attempt, each in list(self._ready.items()):
            if limit is not None and len(taken) >= limit:
                return
            if work_type(each.key) in types:
                taken.append(each)  # first: an interrupt that hits in between finds it there
                if self._ready.pop(attempt, None) is None:
                    taken.pop()  # somebody else was faster

    def _has_ended(self, assignment: BaseAssignment) -> None:
        """Have room for one more. Called from any thread."""
        attempt = assignment._task.grant.attempt  # noqa: SLF001
        self._ready.pop(attempt, None)
        if self._assignments.pop(attempt, None) is not None:
            self._claiming.made_room(boot_time())
            self._ring()

    # Giving it back.

    def _returning(self, assignments: list[A], reason: str) -> Generator[Any, Any, None]:
        """Give some work back; others are offered it at once."""
        for each in assignments:
            each._lose(reason)  # noqa: SLF001
        for each in assignments:
            try:
                yield from plans.finish(each._request("returned"), **self._how())  # noqa: SLF001
            except errors.StoreError as error:
                log().warning("could not return %r, which ends by itself: %s", each.key, error)

    def _unwanted(self) -> list[A]:
        """Return what was claimed ahead, and nobody is there any more to be given it."""
        waiting = [types for types, _ in list(self._waiting.values())]
        wanted = {type for types in [*self._iterating, *waiting] for type in types}
        return [
            each
            for attempt, each in list(self._ready.items())
            # Whoever takes it out of there has it: somebody may be about to be given it after all.
            if work_type(each.key) not in wanted and self._ready.pop(attempt, None) is not None
        ]

    def _return_unwanted(self) -> None:
        """Return that, in the keeper's thread: nobody waits for it."""
        for each in self._unwanted():
            each._lose(RETURNED)  # noqa: SLF001
            self._ask_quietly(each._request("returned"))  # noqa: SLF001

    def _return_soon(self, assignments: list[A]) -> None:
        """Have the keeper return some work."""
        for each in assignments:
            if not self._client._attempts.made(each._task.grant.attempt):  # noqa: SLF001
                continue  # we are a forked child, and it is the parent's
            each._lose(RETURNED)  # noqa: SLF001
            self._client._keeping.ask_soon(each._request("returned"))  # noqa: SLF001

    def _give_back_unknown(self, plan: Plan[None], attempt: str) -> None:
        """Have a plan undo what an interrupted one has done, and stop renewing what nobody knows of."""
        self._run_quietly(plan)
        self._drop_unknown(attempt)

    def _drop_unknown(self, attempt: str = "") -> None:
        """Stop renewing what begins with this attempt. Other threads may be about to make the rest known."""
        keeping = self._client._keeping  # noqa: SLF001
        for kept in keeping.kept():
            grant = kept.grant
            is_meant = grant.owner == self.id and grant.attempt.startswith(attempt)
            if is_meant and grant.attempt not in self._assignments:
                keeping.drop(grant.attempt)
                self._ready.pop(grant.attempt, None)

    def _undo_asking(self, me: str) -> None:
        """Give back what an interrupted claim has got. If somebody else asks, that is theirs to take."""
        if self._asker.setdefault(_ASKER, me) != me:
            return
        try:
            if (unsure := self._claiming.unsure) is not None:
                undo = plans.undo_claim(self._claiming, self._assignments)
                self._give_back_unknown(undo, unsure.attempt)
        finally:
            self._asker.clear()
            self._ring()

    # Signals and the like.

    def _refused(self, reason: str) -> None:
        """Take in why we were not given work."""
        if reason == membership.DRAINING:
            self._member.draining = True
            self._ring()
        elif self._member.lose(reason):
            self._client._keeping.tell_gone(self._member)  # noqa: SLF001

    def _on_signal(self, signal: Signal) -> None:
        """Take in that there is work. Called from any thread."""
        self._claiming.signalled(signal.key)
        self._ring()

    def _begin_waiting(self, me: str, types: tuple[str, ...], batch: int | None) -> None:
        """Have somebody be woken from now on."""
        self._client._mailboxes[me] = "", self._client._new_mailbox()  # noqa: SLF001
        self._waiting[me] = types, batch

    def _stop_waiting(self, me: str) -> None:
        self._waiting.pop(me, None)
        self._client._mailboxes.pop(me, None)  # noqa: SLF001
        if self._asker.get(_ASKER) == me:  # an interrupt has hit before we could ask
            self._asker.clear()
            self._ring()

    def _ring(self) -> None:
        """Wake whoever waits, to look again."""
        mailboxes = self._client._mailboxes  # noqa: SLF001
        for me in list(self._waiting):
            if found := mailboxes.get(me):
                found[1].put(Signal("work", "", me))

    @property
    def _ttl(self) -> float:
        """How long a lease of ours holds without renewal: as long as we are believed without a heartbeat."""
        most = self._client.settings.max_hold
        return self._member.ttl if most is None else min(self._member.ttl, most)

    def _wish(self, task: plans.Task) -> Wish:
        from holdfast.client import Wish
        from holdfast.place import asked_at

        grant = task.grant
        request = Acquire(grant.key, grant.attempt, grant.owner, grant.ttl, self._member.client)
        return Wish(request, None, None, renew=True, on_lost=None, place=asked_at(), named=True)

    def _how(self) -> dict[str, Any]:
        return {"settings": self._client.settings, "clock": boot_time, "roll": random.random}

    def _persistently(self, request: Request[Any]) -> Generator[Any, Any, plans.Answer]:
        deadline = boot_time() + self._client.settings.release_timeout
        return plans.persistently(request, until=lambda: deadline, **self._how())

    def _ask_quietly(self, request: Request[Any]) -> None:
        self._run_quietly(plans.quietly(request))

    def _run_quietly(self, plan: Plan[None]) -> None:
        """Do what a plan wants that does not wait, and block for it: the last thing after an interrupt."""
        client = self._client
        with suppress(StopIteration):
            step: Any = next(plan)
            while True:
                try:
                    answer = client._store.execute(step)  # noqa: SLF001
                except errors.StoreError as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(answer)
        if client._closed:  # noqa: SLF001
            client._store.close()  # noqa: SLF001 - asking has opened it again
