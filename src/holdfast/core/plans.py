"""The protocol of a client, as generators.

A plan yields what it wants and never blocks. The runner (a thread, an event loop, the simulator, or a
test by hand) does it and sends back what came of it:

- a `Request`: send the store's answer, or throw the `StoreError`
- a `Wait`: send the `Signal` that arrived, or None when the time has come

A runner that cannot go on (Ctrl-C, cancellation) throws `Abandoned`. The plan answers with its last
wish, a `Withdraw`, and then lets `Abandoned` through; the runner raises what had interrupted it.
Plans catch nothing broader, so a generator that is merely closed yields nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, TypeVar

from holdfast import errors
from holdfast.core.data import data, replace
from holdfast.core.requests import (
    Acquire,
    Busy,
    Granted,
    NotHeld,
    Queued,
    Release,
    Released,
    Request,
    Signal,
    TooManyHolds,
    Withdraw,
)
from holdfast.core.settings import Settings

T = TypeVar("T")
A = TypeVar("A")
Clock = Callable[[], float]
Roll = Callable[[], float]


@data
class Wait:
    """Wait for a signal for *attempt*, at most until *until* on the local clock (None: no limit)."""

    key: str
    attempt: str
    until: float | None


Step = Request[Any] | Wait
Plan = Generator[Step, Any, T]

TRANSIENT = (errors.StoreUnavailable, errors.OutcomeUnknown)

# A head that asks at the very end of a lease may be a clock tick early, and would have to ask twice.
TICK = 0.002

MOST_LATE = 3  # grants that came too late to be trusted, before we give up


class Abandoned(Exception):
    """Thrown into a plan whose runner cannot go on."""


@data
class Grant:
    """A lease as the client got it. *retire*: a copy of a request may still be under way."""

    key: str
    attempt: str
    owner: str
    token: int
    ttl: float
    trusted_until: float
    holds: int = 1
    retire: bool = False


def acquire(
    request: Acquire,
    *,
    timeout: float | None,
    settings: Settings,
    clock: Clock,
    roll: Roll,
    retire: bool = False,
) -> Plan[Grant]:
    """Get the lock, waiting at most *timeout* (None: for ever; 0: one try).

    *retire* says that the store's transport may repeat requests by itself.
    """
    started = clock()
    deadline = None if timeout is None else started + timeout
    margin = settings.margin_for(request.ttl)
    first_attempt = request.attempt
    failures = successors = late = 0
    queued: Queued | None = None
    unanswered = False
    try:
        while True:
            asked = clock()  # before asking: a slow answer must not lengthen our trust
            try:
                answer = yield request
            except TRANSIENT as error:
                failures += 1
                unanswered = unanswered or isinstance(error, errors.OutcomeUnknown)
                again_at = clock() + settings.backoff.delay(failures, roll())
                if timeout == 0 or (deadline is not None and again_at >= deadline):
                    if queued is not None:
                        raise _timed_out(request.key, queued, clock() - started) from error
                    raise
                yield Wait(request.key, request.attempt, again_at)
                continue
            failures = 0
            if isinstance(answer, Granted):
                trusted_until = asked + request.ttl - margin
                if clock() < trusted_until:
                    return Grant(
                        key=request.key,
                        attempt=request.attempt,
                        owner=request.owner,
                        token=answer.token,
                        ttl=request.ttl,
                        trusted_until=trusted_until,
                        holds=answer.holds,
                        retire=retire or unanswered,
                    )
                # The answer took longer than the lease can be trusted. Asking again moves its end.
                unanswered = True
                late += 1
                if late == MOST_LATE:
                    raise errors.StoreUnavailable(
                        f"the store answers too slowly for a lease of {request.ttl:g} s; use a longer ttl"
                    )
                continue
            if isinstance(answer, Busy):
                raise errors.LockTimeout(
                    request.key, waited=0.0, holder=answer.holder, expires_in=answer.expires_in
                )
            if isinstance(answer, TooManyHolds):
                raise errors.ReentryLimit(
                    request.key, owner=request.owner, holds=answer.holds, limit=request.limit
                )
            if isinstance(answer, NotHeld):
                # Granted and ended again while the answers were lost. An ended attempt stays ended.
                successors += 1
                request = replace(request, attempt=f"{first_attempt}.{successors}")
                continue
            queued = answer
            if deadline is not None and clock() >= deadline:
                raise _timed_out(request.key, queued, clock() - started)
            # At the deadline we ask once more: who has it then is what a timeout has to say.
            yield from _wait_for_our_turn(request, answer, deadline, clock)
    except Abandoned:
        yield from _undo(request)
        raise
    except errors.HoldfastError:
        # Else we left no trace in the store, and no copy of what it refused can come again.
        if queued is not None or unanswered or retire:
            yield from _undo(request)
        raise


def _wait_for_our_turn(request: Acquire, queued: Queued, deadline: float | None, clock: Clock) -> Plan[None]:
    """Wait until asking again is worth it, or the deadline has come."""
    # Only the head watches the end of the lease; ten thousand waiters are not ten thousand polls.
    watch = clock() + queued.expires_in + TICK if queued.position == 1 else None
    while True:
        until = min((t for t in (watch, deadline) if t is not None), default=None)
        signal: Signal | None = yield Wait(request.key, request.attempt, until)
        if signal is None or signal.kind != "head":
            return
        watch = clock() + signal.expires_in + TICK


def _timed_out(key: str, queued: Queued, waited: float) -> errors.LockTimeout:
    return errors.LockTimeout(
        key,
        waited=waited,
        holder=queued.holder,
        expires_in=queued.expires_in,
        position=queued.position,
    )


def _undo(request: Acquire) -> Plan[None]:
    """Withdraw, even if we are interrupted meanwhile: then it may not have been sent yet."""
    withdraw = Withdraw(request.key, request.attempt)
    try:
        yield from _quietly(withdraw)
    except Abandoned:
        yield from _quietly(withdraw)
        raise


def _quietly(request: Request[Any]) -> Plan[None]:
    """Ask once. If that fails too, the ticket ends with its patience, or the lease with its ttl."""
    with suppress(errors.StoreError):
        yield request


def release(grant: Grant, *, settings: Settings, clock: Clock, roll: Roll) -> Plan[Released | NotHeld]:
    """Give the hold back, asking again while the store fails and the lease is worth it."""
    deadline = clock() + settings.release_timeout
    request = Release(grant.key, grant.attempt, grant.token, grant.retire)
    failures = 0
    unknown = False
    try:
        while True:
            try:
                answer: Released | NotHeld = yield request
            except TRANSIENT as error:
                failures += 1
                if isinstance(error, errors.OutcomeUnknown):
                    unknown = True
                    request = replace(request, retire=True)
                again_at = clock() + settings.backoff.delay(failures, roll())
                if again_at >= deadline:
                    raise
                yield Wait(grant.key, grant.attempt, again_at)
                continue
            if unknown and isinstance(answer, NotHeld) and answer.why != "broken":
                return Released()  # our own release, whose answer was lost
            return answer
    except Abandoned:  # the request may not have been sent yet; releasing twice is harmless
        yield from _quietly(replace(request, retire=True))
        raise


def ask(request: Request[A], *, settings: Settings, clock: Clock, roll: Roll) -> Plan[A]:
    """Ask for something that may be asked twice, again and again while the store is unavailable."""
    deadline = clock() + settings.release_timeout
    failures = 0
    while True:
        try:
            answer: A = yield request
        except errors.StoreUnavailable:
            failures += 1
            again_at = clock() + settings.backoff.delay(failures, roll())
            if again_at >= deadline:
                raise
            yield Wait("", "", again_at)
        else:
            return answer
