"""What an instance does, as generators: see `plans`. Joining, claiming, assigning, finishing.

All of it can be asked again after a lost answer: a join by its id, a claim by its number, an assignment and
its end by their attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from holdfast import errors
from holdfast.core import cluster as c
from holdfast.core.data import data, replace
from holdfast.core.demand import Demand
from holdfast.core.plans import MOST_LATE, TRANSIENT, Abandoned, Clock, Grant, Plan, Retries, Roll
from holdfast.core.plans import quietly as quietly
from holdfast.core.refusals import DEAD, error_for, gone
from holdfast.core.requests import NotHeld, Request, Withdraw
from holdfast.core.settings import Settings


@data
class Answer:
    """What a store said, and when it was asked: from then on it may be trusted."""

    said: Any
    asked: float
    unsure: bool = False  # an earlier try may have been heard


@data
class Task:
    """Work as the client got it: the lease, and what is to be done."""

    grant: Grant
    data: str
    tries: int


def persistently(
    request: Request[Any], *, until: Callable[[], float], settings: Settings, clock: Clock, roll: Roll
) -> Plan[Answer]:
    """Ask for what may be asked twice, again and again while the store fails, at most until *until*."""
    retries = Retries(settings, clock, roll, until)
    while True:
        asked = clock()  # before asking: a slow answer must not lengthen our trust
        try:
            said = yield request
            return Answer(said, asked, retries.unknown is not None)
        except TRANSIENT as error:
            yield retries.after(error)


def join(request: c.Join, *, settings: Settings, clock: Clock, roll: Roll) -> Plan[Answer]:
    """Become an instance. Interrupted, or failing when it may have been heard, it leaves again."""
    deadline = clock() + settings.release_timeout
    try:
        answer = yield from persistently(
            request, until=lambda: deadline, settings=settings, clock=clock, roll=roll
        )
    except (Abandoned, errors.OutcomeUnknown):
        yield from quietly(c.Leave(request.id))
        raise
    if answer.said.state != "alive":  # it took longer than its ttl
        raise errors.InstanceLost(request.id, DEAD)
    return answer


def claim(
    demand: Demand,
    request: c.Claim,
    *,
    known: Container[str],
    until: Callable[[], float],
    settings: Settings,
    clock: Clock,
    roll: Roll,
) -> Plan[Answer]:
    """Claim work. Interrupted, it returns what it may have got, but for the attempts that are *known*.

    Whoever runs it takes the answer into care, and then tells `Demand.answered`. Until then the claim is
    *unsure*: the next one asks for it once more.
    """
    demand.unsure = request
    try:
        answer = yield from persistently(request, until=until, settings=settings, clock=clock, roll=roll)
    except Abandoned:
        yield from undo_claim(demand, known)
        raise
    if isinstance(answer.said, c.Beat):
        demand.unsure = None
    return answer


def undo_claim(demand: Demand, known: Container[str]) -> Plan[None]:
    """Return what an interrupted claim may have got. If that fails too, the next one finds it."""
    request = demand.unsure
    if request is None:
        return
    said = yield from quietly(request)
    if isinstance(said, c.Claimed):
        for work in said.works:
            if work.attempt not in known:
                yield from quietly(c.Finish(work.key, work.attempt, work.token, "returned", retire=True))
    demand.unsure = request if said is None else None


def claimed_task(work: c.Assigned, request: c.Claim, *, asked: float, settings: Settings) -> Task:
    """Return a piece of a claim's answer with the trust that it deserves."""
    return _task(work, request.id, request.ttl, asked=asked, retire=False, settings=settings)


def _task(
    work: c.Assigned, owner: str, ttl: float, *, asked: float, retire: bool, settings: Settings
) -> Task:
    # A claim that is answered the second time tells of leases that are older than the question.
    trusted_until = asked + min(work.expires_in, ttl) - settings.margin_for(ttl)
    grant = Grant(work.key, work.attempt, owner, work.token, ttl, trusted_until, retire=retire)
    return Task(grant, work.data, work.tries)


def assign(
    request: c.Assign, *, settings: Settings, clock: Clock, roll: Roll, retire: bool = False
) -> Plan[Task]:
    """Take one piece of work, or raise who has it. *retire*: the transport may repeat requests by itself."""
    deadline = clock() + settings.release_timeout
    first_attempt = request.attempt
    successors = late = 0
    unsure = retire
    try:
        while True:
            answer = yield from persistently(
                request, until=lambda: deadline, settings=settings, clock=clock, roll=roll
            )
            said = answer.said
            unsure = unsure or answer.unsure
            if isinstance(said, NotHeld):
                # Assigned and ended again while the answers were lost. An ended attempt stays ended.
                successors += 1
                request = replace(request, attempt=f"{first_attempt}.{successors}")
                continue
            if not isinstance(said, c.Assigned):
                raise error_for(request, said) or gone(request.id, said)
            task = _task(
                said, request.owner, request.ttl, asked=answer.asked, retire=unsure, settings=settings
            )
            if clock() < task.grant.trusted_until:
                return task
            unsure = True  # the answer took longer than it can be trusted: asking again moves its end
            late += 1
            if late == MOST_LATE:
                raise errors.StoreUnavailable(
                    f"the store answers too slowly for a lease of {request.ttl:g} s; use a longer ttl"
                )
    except (Abandoned, errors.OutcomeUnknown):
        yield from undo_assign(request)
        raise
    except errors.HoldfastError:
        if unsure:  # a copy of what was refused may still come
            yield from undo_assign(request)
        raise


def undo_assign(request: c.Assign) -> Plan[None]:
    """Give back what an attempt may have been assigned, and see to it that no late copy of it is.

    To ask for it once more would make work of what is none yet. So we look, for the token that it may have.
    """
    view = yield from quietly(c.InspectWork(request.key))
    if view is not None and view.state == "assigned":
        finish = c.Finish(request.key, request.attempt, view.token, "returned", retire=True)
        if isinstance((yield from quietly(finish)), c.Finished):
            return
    yield from quietly(Withdraw(request.key, request.attempt))


def finish(request: c.Finish, *, settings: Settings, clock: Clock, roll: Roll) -> Plan[c.Finished | NotHeld]:
    """End an assignment, asking again while the store fails and it is worth it."""
    deadline = clock() + settings.release_timeout
    retries = Retries(settings, clock, roll, lambda: deadline)
    try:
        while True:
            try:
                answer: c.Finished | NotHeld = yield request
            except TRANSIENT as error:
                if isinstance(error, errors.OutcomeUnknown):
                    request = replace(request, retire=True)  # or a copy could come after the next grant
                yield retries.after(error)
                continue
            if retries.unknown is not None and isinstance(answer, NotHeld) and answer.why == "already":
                return c.Finished(_state_after(request))  # our own, whose answer was lost
            return answer
    except Abandoned:  # the request may not have been sent yet; to finish twice is harmless
        yield from quietly(replace(request, retire=True))
        raise


def _state_after(request: c.Finish) -> Any:
    if request.ending == "completed" and request.at is None:
        return "completed"
    return "failed" if request.ending == "failed" and request.retry is None else "offered"
