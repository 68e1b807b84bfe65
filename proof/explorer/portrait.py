"""What a fingerprint says of one client, whatever the others do.

All attempts that a client knows are its own: the turn says which one is meant. Tokens are told apart, because
their ranks are the whole world's business.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from typing import Any

from holdfast.core.keeper import Kept
from holdfast.core.plans import Handed
from holdfast.core.requests import Renew, Signal
from proof.explorer.bounds import SETTINGS
from proof.explorer.plans import NEVER, seconds
from proof.explorer.world import Actor, Written

Form = tuple[Any, ...]


def written(form: Any) -> bytes:
    """Return a form as bytes: the same value always in the same way, and another one in another."""
    return marshal.dumps(form, 2)  # later versions have references, where one thing is in two places


def portrait(actor: Actor, now: int, keys: list[str]) -> bytes:
    """Return what there is to say of a client, with the keys in this order."""
    last = actor.written
    if last is not None and last.now == now and last.keys == keys:
        return last.form
    form = written(_client(actor, now, keys))
    actor.written = Written(now, keys, form)
    return form


def in_use(actor: Actor) -> tuple[Kept, ...]:
    """Return what a client has, and what it has passed on."""
    return actor.held if actor.passed is None else (*actor.held, actor.passed)


def tokens(actor: Actor) -> Iterator[tuple[str, int]]:
    """Return all tokens that a client knows, with their keys."""
    for kept in in_use(actor):
        yield kept.grant.key, kept.grant.token
    if actor.releasing is not None:
        yield actor.releasing.key, actor.releasing.token
    if actor.renewing is not None:
        for lease in actor.renewing.leases:
            yield lease.key, lease.token
    for each in actor.mail:
        if isinstance(each, Handed):
            yield actor.key, each.token


def attempts(actor: Actor) -> Iterator[str]:
    """Return all attempts that a client may still ask about."""
    if actor.attempt is not None:
        yield actor.attempt
    elif actor.releasing is not None:
        yield actor.releasing.attempt
    for kept in in_use(actor):
        yield kept.grant.attempt
    if actor.renewing is not None:
        yield from attempts_of(actor.renewing)


def attempts_of(request: Any) -> Iterator[str]:
    """Return all attempts that a request names."""
    if isinstance(request, Renew):
        yield from (lease.attempt for lease in request.leases)
        yield from (ticket.attempt for ticket in request.tickets)
    else:
        yield request.attempt


def request_form(request: Any, keys: list[str]) -> Form:
    """Return what a request says, but for its tokens."""
    if isinstance(request, Renew):
        return (
            tuple((lease.attempt[2:], keys.index(lease.key)) for lease in request.leases),
            tuple((ticket.attempt[2:], keys.index(ticket.key)) for ticket in request.tickets),
        )
    return (
        type(request).__name__,
        keys.index(request.key),
        request.attempt[2:],
        getattr(request, "owner", "")[2:],
        getattr(request, "wait", False),
        getattr(request, "retire", False),
    )


def _client(actor: Actor, now: int, keys: list[str]) -> Form:
    if not actor.alive:
        return (actor.begun,)
    keeper = actor.keeper
    return (
        actor.begun,
        _until(actor.paused_until, now),
        _play(actor, now, keys),
        tuple([_kept(kept, now, keys) for kept in in_use(actor)]),
        actor.passed is not None,
        # In their order: that of the leases in a renewal.
        tuple([(a[2:], *_care(actor, kept, now)) for a, kept in keeper.leases.items()]),
        _overtaken(actor, now),
        tuple([(a[2:], _until(seconds(t.refresh_at), now), t.failures) for a, t in keeper.tickets.items()]),
        () if actor.renewing is None else _renewing(actor, actor.renewing, now, keys),
    )


def _until(instant: int | None, now: int) -> int:
    """Return how long it is to an instant; none if it has come."""
    return -1 if instant is None else max(instant - now, 0)


def _play(actor: Actor, now: int, keys: list[str]) -> Form:
    play = actor.play
    if play is None:
        return ()
    place = play.place
    return (
        place.frames,
        tuple([_until(instant, now) for instant in place.instants]),
        place.asked - now if place.asked >= 0 else 1,
        keys.index(actor.key),
        tuple([_mail(each, now) for each in actor.mail]),
        actor.unsent,
        _until(actor.gives_up_at, now),
        actor.traces,
        actor.withdrew,
    )


def _kept(kept: Kept, now: int, keys: list[str]) -> Form:
    grant, lost = kept.grant, kept.lost is not None
    trusted = 0 if lost else _until(seconds(kept.trusted_until), now)
    return grant.attempt[2:], grant.owner[2:], keys.index(grant.key), grant.retire, lost, trusted


def _care(actor: Actor, kept: Kept, now: int) -> Form:
    """Return when a lease is asked about, and whether it will be once more after the answer under way."""
    again = (
        actor.renewing is not None
        and kept.hurried_at >= actor.renew_asked
        and any(lease.attempt == kept.grant.attempt for lease in actor.renewing.leases)
    )
    return _until(seconds(kept.renew_at), now), kept.failures, kept.renews, again


def can_be_entered(since: float, now: int) -> bool:
    """Tell whether enough is left of a hand-over since then. If not, it is a hint, and so it stays."""
    return since + SETTINGS.claim / 2 >= now


def _mail(signal: Signal | Handed, now: int) -> Form:
    if isinstance(signal, Signal):
        return signal.kind, signal.expires_in
    return "granted", int(signal.since) - now if can_be_entered(signal.since, now) else -NEVER


def _overtaken(actor: Actor, now: int) -> int:
    """Return what a signal for a lease that is not known yet means: for what is asked now, or was before."""
    hurried_at = actor.keeper.hurried_at
    if actor.keeper.tickets and can_be_entered(hurried_at, now):  # a hand-over counts from earlier
        return 3 + now - int(hurried_at)
    asked = now if actor.play is None or actor.play.place.asked < 0 else actor.play.place.asked
    return 2 if hurried_at >= now else 1 if hurried_at >= asked else 0


def _renewing(actor: Actor, request: Renew, now: int, keys: list[str]) -> Form:
    return actor.renew_asked - now, _until(actor.renew_gives_up_at, now), request_form(request, keys)
