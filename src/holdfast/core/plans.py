"""The protocol of a client, as generators.

A plan yields what it wants and never blocks. The runner (a thread, an event loop, the simulator, or a
test by hand) does it and sends back what came of it:

- a `Request`: send the store's answer, or throw the `StoreError`
- a `Wait`: send the `Signal` or `Handed` that arrived, or None when the time has come

A runner that cannot go on (Ctrl-C, cancellation) throws `Abandoned`. The plan answers with its last
wish, a `Withdraw`, and then lets `Abandoned` through; the runner raises what had interrupted it.
Plans catch nothing broader, so a generator that is merely closed yields nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, TypeVar

from holdfast import errors
from holdfast.core import requests as r
from holdfast.core.data import data, replace
from holdfast.core.family import PLAIN, Failure, Outcome, Terms
from holdfast.core.refusals import refusal
from holdfast.core.requests import Acquire, Done, Granted, NotHeld, Queued, Released, Request, Withdraw
from holdfast.core.settings import Settings, pause_in_queue

T = TypeVar("T")
A = TypeVar("A")
Clock = Callable[[], float]
Roll = Callable[[], float]

_OVER = (NotHeld, Done, r.Failed)  # for an attempt that only wanted the lock


@data
class Wait:
    """Wait for a signal for *attempt*, at most until *until* on the local clock (None: no limit)."""

    key: str
    attempt: str
    until: float | None


@data
class Handed:
    """A hand-over to *attempt* that can be entered: it has lasted since *since* or less, by our clock."""

    attempt: str
    token: int
    since: float
    lasts: float


Step = Request[Any] | Wait
Plan = Generator[Step, Any, T]

TRANSIENT = (errors.StoreUnavailable, errors.OutcomeUnknown)

# A head that asks at the very end of a lease may be a clock tick early, and would have to ask twice.
TICK = 0.002

# How often who watches looks for events, in seconds: if nobody tells that there are some, and otherwise.
WATCH_EVERY, WATCH_ANYWAY = 0.25, 3.0
WATCH_PACE = 0.2  # seconds after a look that found nothing to the next, at least, however often we are told

MOST_LATE = 3  # grants that came too late to be trusted, before we give up


class Abandoned(Exception):
    """Thrown into a plan whose runner cannot go on. *in_vain*: what it began could not be undone."""

    in_vain = False


class Stopped(Exception):
    """A plan was given up because nobody wants any more what it waited for."""


@data
class Grant:
    """A lease as the client got it. *retire*: a copy of a request may still be under way.

    *lasts*: for how long a hand-over has granted it; then the keeper still has to claim it for the *ttl*.
    """

    key: str
    attempt: str
    owner: str
    token: int
    ttl: float
    trusted_until: float
    holds: int = 1
    retire: bool = False
    terms: Terms = PLAIN
    failures: tuple[Failure, ...] = ()
    lasts: float = 0.0


def acquire(
    request: Acquire,
    *,
    timeout: float | None,
    settings: Settings,
    clock: Clock,
    roll: Roll,
    retire: bool = False,
    enters: bool = False,
) -> Plan[Grant | Done]:
    """Get the lock, waiting at most *timeout* (None: for ever; 0: one try). An operation may be done by then.

    *retire* says that the store's transport may repeat requests by itself. *enters*: somebody will renew the
    lease, so that a hand-over can be entered without asking again.
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
                again_at = clock() + pause_in_queue(settings, failures, roll())
                if timeout == 0 or (deadline is not None and again_at >= deadline):
                    if queued is not None:
                        raise _timed_out(request.key, queued, clock() - started) from error
                    raise
                yield Wait(request.key, request.attempt, again_at)
                continue
            failures = 0
            retired = retire or unanswered  # a copy of a request may still be under way
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
                        retire=retired,
                        terms=request.terms,
                        failures=answer.failures,
                    )
                # The answer took longer than the lease can be trusted. Asking again moves its end.
                unanswered = True
                late += 1
                if late == MOST_LATE:
                    raise errors.StoreUnavailable(
                        f"the store answers too slowly for a lease of {request.ttl:g} s; use a longer ttl"
                    )
                continue
            if isinstance(answer, NotHeld if request.terms.operation else _OVER):
                # Granted and ended again while the answers were lost; or somebody else's operation is over,
                # and we only wanted the lock. An ended attempt stays ended.
                successors += 1
                request = replace(request, attempt=f"{first_attempt}.{successors}")
                continue
            if not isinstance(answer, Queued | Done):
                raise refusal(request, answer)
            if isinstance(answer, Done):
                # A late copy of an attempt that is not over could take the lock.
                if answer.kept and retired:
                    yield from _undo(request)
                return answer
            queued = answer
            if deadline is not None and clock() >= deadline:
                raise _timed_out(request.key, queued, clock() - started)
            # At the deadline we ask once more: who has it then is what a timeout has to say.
            handed = yield from _wait_for_our_turn(request, answer, deadline, clock)
            if handed is not None and enters and request.ttl >= handed.lasts:
                trusted_until = handed.since + handed.lasts - settings.margin_for(handed.lasts)
                if trusted_until - clock() >= handed.lasts / 2:  # the keeper needs time to claim it
                    return Grant(
                        key=request.key,
                        attempt=request.attempt,
                        owner=request.owner,
                        token=handed.token,
                        ttl=request.ttl,
                        trusted_until=trusted_until,
                        retire=retired,
                        terms=request.terms,
                        lasts=handed.lasts,
                    )
    except Abandoned:
        yield from _undo(request)
        raise
    except errors.HoldfastError:
        # Else we left no trace in the store, and no copy of what it refused can come again.
        if queued is not None or unanswered or retire:
            yield from _undo(request)
        raise


def _wait_for_our_turn(
    request: Acquire, queued: Queued, deadline: float | None, clock: Clock
) -> Plan[Handed | None]:
    """Wait until we are handed the lock, asking again is worth it, or the deadline has come."""
    # Only the head watches the end of the lease; ten thousand waiters are not ten thousand polls.
    watch = clock() + queued.expires_in + TICK if queued.position == 1 else None
    while True:
        until = min((t for t in (watch, deadline) if t is not None), default=None)
        signal: r.Signal | Handed | None = yield Wait(request.key, request.attempt, until)
        if isinstance(signal, Handed):
            return signal if signal.attempt == request.attempt else None  # of one that has ended: ask
        if signal is None or signal.kind != "head":
            return None
        watch = clock() + signal.expires_in + TICK


def unless(stopped: Callable[[], bool], plan: Plan[T]) -> Plan[T]:
    """Run a plan, but abandon it once it is *stopped*, when it next wakes up; then raise `Stopped`.

    Whoever stops it sees to that: by a signal for whatever it waits for.
    """
    over = False
    try:
        if stopped():
            raise Stopped
        step = next(plan)
        while True:
            try:
                result = yield step
            except (errors.StoreError, Abandoned) as error:
                step = plan.throw(error)
                continue
            if not over and isinstance(step, Wait) and stopped():
                over = True
                step = plan.throw(Abandoned())
            else:
                step = plan.send(result)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    except Abandoned:
        if over:
            raise Stopped from None
        raise


def _timed_out(key: str, queued: Queued, waited: float) -> errors.LockTimeout:
    return errors.LockTimeout(
        key, waited=waited, holder=queued.holder, expires_in=queued.expires_in, position=queued.position
    )


def _undo(request: Acquire) -> Plan[None]:
    """Withdraw, whatever comes of it."""
    yield from quietly(Withdraw(request.key, request.attempt))


def quietly(request: Request[Any]) -> Plan[Any]:
    """Ask once, even if we are interrupted meanwhile: then it may not have been sent yet."""
    try:
        return (yield from _once(request))
    except Abandoned:
        yield from _once(request)
        raise


def _once(request: Request[Any]) -> Plan[Any]:
    """Ask once; None if that fails, too. Whoever runs the plan may pursue it."""
    with suppress(errors.StoreError):
        return (yield request)


def release(
    grant: Grant, *, settings: Settings, clock: Clock, roll: Roll, outcome: Outcome | None = None
) -> Plan[Released | NotHeld | r.Refused]:
    """Give the hold back, asking again while the store fails and the lease is worth it."""
    deadline = clock() + settings.release_timeout
    # With an outcome it must be known for sure that it was this release, if the answer is lost.
    retire = grant.retire or outcome is not None
    request = r.Release(grant.key, grant.attempt, grant.token, retire, outcome)
    failures = 0
    unknown = False
    try:
        while True:
            try:
                answer: Released | NotHeld | r.Refused = yield request
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
            if unknown and isinstance(answer, NotHeld) and _is_ours(answer, outcome):
                return Released()  # our own release, whose answer was lost
            return answer
    except Abandoned as abandoned:  # the request may not have been sent yet; releasing twice is harmless
        request = replace(request, retire=True)
        told = yield from _once(request)
        if isinstance(told, r.Refused):  # not the last hold: the outcome is another's
            told = yield from _once(replace(request, outcome=None))
        abandoned.in_vain = told is None
        raise


def _is_ours(answer: NotHeld, outcome: Outcome | None) -> bool:
    """Tell whether a release that was asked for twice has found that the first did it."""
    return answer.why == "already" if outcome is not None else answer.why != "broken"


def ask(
    request: Request[A], *, settings: Settings, clock: Clock, roll: Roll, unknown_too: bool = False
) -> Plan[A]:
    """Ask for something that may be asked twice, again and again while the store is unavailable.

    With *unknown_too* also when nobody knows whether it was done: for what has the same answer if it was.
    """
    worth_repeating = TRANSIENT if unknown_too else errors.StoreUnavailable
    deadline = clock() + settings.release_timeout
    retries = Retries(settings, clock, roll, lambda: deadline)
    while True:
        try:
            answer: A = yield request
            return answer
        except worth_repeating as error:
            yield retries.after(error)


class Retries:
    """How a plan asks again while the store fails: each time later, and only as long as it is worth it."""

    def __init__(self, settings: Settings, clock: Clock, roll: Roll, until: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._roll = roll
        self._until = until
        self._failures = 0
        self.unknown: errors.OutcomeUnknown | None = None  # an earlier try may have been heard

    def after(self, error: errors.StoreError) -> Wait:
        """Return when to ask again after a failure. Raise it, if that would be too late."""
        if isinstance(error, errors.OutcomeUnknown):
            self.unknown = error
        self._failures += 1
        again_at = self._clock() + self._settings.backoff.delay(self._failures, self._roll())
        try:
            if again_at >= self._until():
                raise self.unknown or error from None  # what one try may have done, no later one takes back
        finally:
            del error  # its traceback has this frame: they would keep each other alive
        return Wait("", "", again_at)


def break_leases(request: r.Break, *, settings: Settings, clock: Clock, roll: Roll) -> Plan[list[r.Broken]]:
    """Break the lease that is named, or all that are there when we look first. Return those that were.

    Each is named by its token: asked twice, or too late, a break must not hit the next one. An inspection
    shows only the first of many, so we look again until it shows none of those that were there.
    """

    def persistently(wanted: Request[A]) -> Plan[A]:
        return ask(wanted, settings=settings, clock=clock, roll=roll)

    if request.token is not None:
        answer = yield from persistently(request)
        return [answer] if isinstance(answer, r.Broken) else []
    view = yield from persistently(r.Inspect(request.key))
    newest = view.token if view is not None else 0
    named: set[int] = set()
    broken: list[r.Broken] = []
    while view is not None and (left := [t for t in _tokens(view) if t <= newest and t not in named]):
        for token in left:
            answer = yield from persistently(replace(request, token=token))
            if isinstance(answer, r.Broken):
                broken.append(answer)
        named.update(left)
        if len(view.holders) < r.MOST_SHOWN:
            break  # it showed them all
        view = yield from persistently(r.Inspect(request.key))
    return broken


def _tokens(view: r.LockView) -> list[int]:
    """Return what there is to be broken: leases, being shut because of one, a result that is kept."""
    shown = view.holders if view.state == "held" else ()
    shut_by = view.holder if view.holder is not None and view.holder.gone else None
    return list(dict.fromkeys(each.token for each in (*shown, shut_by, view.kept) if each is not None))


def next_events(
    request: r.Watch, attempt: str = "", *, until: float | None, settings: Settings, clock: Clock, roll: Roll
) -> Plan[r.Feed]:
    """Wait for events, at most until *until* (None: for ever), through whatever the store suffers.

    Who waits as *attempt* may be told that there is something. That is a hint: we look now and then anyway.
    """
    failures = 0
    while True:
        try:
            answer: r.Feed = yield request
        except TRANSIENT:
            failures += 1
            again_at = clock() + settings.backoff.delay(failures, roll())
            if until is not None and again_at >= until:
                raise
            yield Wait("", "", again_at)
            continue
        failures = 0
        if answer.events or request.after is None:
            return answer
        # A store looks at that many events at least, and tells of those that are wanted. If they were
        # fewer, it has come to the end; who waited each time would never be done with a long backlog.
        more = answer.after - request.after >= request.limit
        request = replace(request, after=answer.after)
        if more:
            continue
        if until is not None and clock() >= until:
            return answer
        looked = clock()
        again_at = looked + (WATCH_ANYWAY if answer.tells else WATCH_EVERY)
        told = yield Wait("", attempt, again_at if until is None else min(again_at, until))
        soonest = looked + WATCH_PACE  # one look is enough for many events
        if told is not None and clock() < soonest:
            yield Wait("", "", soonest if until is None else min(soonest, until))
