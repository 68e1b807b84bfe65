"""The routes of locks, and of what happens to them."""

from __future__ import annotations

from typing import Any, get_args

from holdfast.core import requests as r
from holdfast.core.family import LARGEST_RESULT, LONGEST, Mode, Outcome, Terms
from holdfast.core.settings import MAX_TTL
from holdfast.core.wire.fields import Field, Fields, may, must, seldom
from holdfast.core.wire.route import (
    ADDRESS,
    ATTEMPT,
    BY,
    COUNT,
    ID,
    LISTED,
    MOST_LISTED,
    TOKEN,
    Route,
    change,
    look,
)
from holdfast.core.wire.shapes import Flag, Key, Many, Number, OneOf, Text, Whole

MOST_RENEWED = 4000
MOST_PERMITS = COUNT.most
LONGEST_PATIENCE = MAX_TTL  # a dead waiter is in the way of others for no longer

_PATIENCE = Number(0, LONGEST_PATIENCE, above=True)
_LONG = Number(0, LONGEST)
_TEXT = Text(LARGEST_RESULT, 0, multiline=True)


def _term(attribute: str, *how: Any) -> Field:
    return may(*how, attribute=f"terms.{attribute}", sparing=True)


ACQUIRE = {
    "attempt": may(ID, about="A secret of the caller's own, to ask again with; made up if it is missing."),
    "owner": may(Text(), about="Who asks, across attempts: the same owner may enter again."),
    "ttl": may(Number(0, above=True), 30.0, "How long the lease holds without renewal, in seconds."),
    "wait": may(Flag(), False, "Join the queue; 202 with the place in it."),
    "timeout": may(Number(), 0.0, "How long the server waits for the lock before it answers.", attribute=""),
    "limit": may(Whole(1, 1_000_000), r.DEFAULT_LIMIT, "How often one owner may hold it."),
    "patience": may(_PATIENCE, 15.0, "How long the place in the queue is kept unasked."),
    "claim": may(_PATIENCE, 5.0, "How long a lock that was handed over waits for its claim."),
    "mode": _term("mode", OneOf(get_args(Mode)), None, "Exclusive, unless there are permits to take."),
    "take": _term("take", Whole(1, MOST_PERMITS), 1, "How many permits."),
    "permits": _term("permits", COUNT, 0, "How many there are; 0: as many as the store says."),
    "lock_delay": _term("delay", _LONG, 0.0, "How long the lock stays shut if this lease runs out."),
    "at_least": _term(
        "at_least",
        _LONG,
        0.0,
        "How long the lock stays taken, from its grant, although it is released. Only if it is exclusive.",
    ),
    "operation": _term("operation", Flag(), False, "It is an operation, whose outcome matters."),
    "max_attempts": _term(
        "max_attempts", COUNT, 0, "Failures until everybody is told to give up; 0: no limit."
    ),
    "seen": seldom(Whole(), 0, "The token of a kept result that is not what is wanted: do it again, then."),
}
# What members have to do with each other; the handler reads it so. In another mode there are no permits to
# take, and only what is exclusive can stay taken.
ONLY_PERMITS = {
    "if": {"properties": {"mode": {"not": {"const": "permits"}}}, "required": ["mode"]},
    "then": {"properties": {"permits": {"const": 0}, "take": {"const": 1}}},
}
ONLY_EXCLUSIVE = {
    "if": {"properties": {"at_least": {"exclusiveMinimum": 0}}, "required": ["at_least"]},
    "then": {"properties": {"mode": {"const": "exclusive"}, "permits": {"const": 0}, "take": {"const": 1}}},
}
OUTCOME = {
    "succeeded": must(Flag()),
    "text": must(_TEXT, "The result as JSON if it succeeded, else what went wrong."),
    "keep": seldom(_LONG, 0.0, "For how long a result is told to whoever asks for the operation, from now."),
}
RELEASE = {
    "attempt": ATTEMPT,
    "token": TOKEN,
    # By default: who asks by hand does not know whether a copy of its acquire is still under way somewhere.
    "retire": may(Flag(), True, "Remember the attempt, so that a late copy of its acquire takes nothing."),
    "outcome": may(Fields.of(Outcome, OUTCOME), about="How an operation ended."),
}
WITHDRAW = {
    "attempt": ATTEMPT,
    "held": seldom(Flag(), False, "The caller has had the lease: its at_least counts, as with a release."),
}
LEASE = {"attempt": ATTEMPT, "token": TOKEN}
# As short as can be, too: a lease that comes to its max_hold must not spoil the batch that it is in.
RENEWED = {"key": must(Key()), **LEASE, "ttl": must(Number())}
TICKET = {"key": must(Key()), "attempt": ATTEMPT, "patience": must(Number(0, LONGEST_PATIENCE))}
RENEW = {
    "leases": may(Many(Fields.of(r.RenewLease, RENEWED), MOST_RENEWED), ()),
    "tickets": may(Many(Fields.of(r.RefreshTicket, TICKET), MOST_RENEWED), ()),
}
BREAK = {"reason": must(Text(1000)), "by": BY, "token": may(Whole(), about="Only the lease with this token.")}
RESIZE = {"permits": must(Whole(1, MOST_PERMITS)), "by": BY}
LIST = {
    "prefix": may(Key(empty=True), ""),
    "owner": may(Text()),
    "type": may(Key()),
    "state": may(OneOf(get_args(r.LockState))),
    "after": may(Key(empty=True), "", "The last key of the page before."),
    "limit": may(LISTED, 100),
}
WATCH = {
    "key": may(Key(), about="Only of this lock."),
    "prefix": may(Key(empty=True), about="Only of locks that begin so, unless there is a key."),
    "after": may(Whole(), about="Behind the event with this id; 0: from the oldest."),
    "limit": may(LISTED, 100),
    "address": may(
        Text(129, 0, ADDRESS), "", "Where to signal the next event: the address from /v1/signals."
    ),
}
SIGNALS = {
    "instance": may(Text(64, 0, "[0-9A-Za-z_-]*"), ""),
    "host": may(Text(), ""),
    "pid": may(COUNT, 0),
}


def _change(name: str, *what: Any, **more: Any) -> Route:
    """Return the route of what is done to one lock."""
    return change(name, "/v1/locks/{key}", *what, **{"problems": (409,), **more})


LOCKS: tuple[Route, ...] = (
    _change(
        *(
            "acquire",
            r.Acquire,
            ("granted", "done", (202, "queued")),
            "Take a lock, or wait for it.",
            ACQUIRE,
        ),
        parts={"terms": Terms},
        conditions={"allOf": [ONLY_PERMITS, ONLY_EXCLUSIVE]},
        streams=True,
    ),
    _change("release", r.Release, "released", "Give a lock back, or tell how an operation ended.", RELEASE),
    _change(
        *("withdraw", r.Withdraw, "withdrawn"),
        "Leave the queue, or give back whatever the attempt has.",
        WITHDRAW,
    ),
    _change("downgrade", r.Downgrade, "granted", "Make an exclusive lease a shared one.", LEASE),
    change(
        *("renew", "/v1/renew", r.Renew, "renewed", "Keep leases and places in queues alive, many at once."),
        RENEW,
        scope="keys",
    ),
    _change("break", r.Break, "broken", "Take a lock away from whoever holds it.", BREAK, verb="break"),
    _change(
        *("resize", r.Resize, "resized", "Set how many permits a semaphore has.", RESIZE),
        verb="admin",
        problems=(),
    ),
    look("list", "/v1/locks", r.List, "page", "Look at many locks, a page at a time.", LIST),
    look(
        *("inspect", "/v1/locks/{key}", r.Inspect, "lock_view"),
        "Look at one lock, its holders and its queue.",
        problems=(404,),
    ),
    look(
        *("history", "/v1/locks/{key}/history", r.History, "events"),
        "Read what happened to a lock, oldest first.",
        {"limit": may(Whole(0, MOST_LISTED), 100)},
    ),
    # Its request has a key that is exact or a prefix; here these are two members.
    look(
        *("events", "/v1/events", None, "feed", "Read what happens, as JSON or as an event stream."),
        WATCH,
        streams=True,
    ),
    Route(
        *("signals", "GET", "/v1/signals", "Be woken: an event stream for one client.", (), None, SIGNALS),
        streams=True,
    ),
)
