"""The routes of locks, and of what happens to them."""

from __future__ import annotations

from typing import get_args

from holdfast.core.family import LARGEST_RESULT, LONGEST, Mode
from holdfast.core.requests import DEFAULT_LIMIT, LockState
from holdfast.server.routes.route import (
    ATTEMPT,
    BY,
    CLIENT,
    ID,
    LISTED,
    LONGEST_PATIENCE,
    MOST_LISTED,
    NOW,
    TOKEN,
    Route,
    fields,
    may,
    must,
)
from holdfast.server.shapes import Flag, Key, Many, Number, OneOf, Text, Whole

MOST_RENEWED = 4000

ACQUIRE = fields(
    attempt=may(ID, about="A secret of the caller's own, to ask again with; made up if it is missing."),
    owner=may(Text(), about="Who asks, across attempts: the same owner may enter again."),
    ttl=may(Number(0, above=True), 30.0, "How long the lease holds without renewal, in seconds."),
    wait=may(Flag(), False, "Join the queue; 202 with the place in it."),
    timeout=may(Number(), 0.0, "How long the server waits for the lock before it answers."),
    limit=may(Whole(1, 1_000_000), DEFAULT_LIMIT, "How often one owner may hold it."),
    patience=may(
        Number(0, LONGEST_PATIENCE, above=True), 15.0, "How long the place in the queue is kept unasked."
    ),
    claim=may(
        Number(0, LONGEST_PATIENCE, above=True),
        5.0,
        "How long a lock that was handed over waits for its claim.",
    ),
    mode=may(OneOf(get_args(Mode)), about="Exclusive, unless there are permits to take."),
    take=may(Whole(1, 2**31 - 1), 1, "How many permits."),
    permits=may(Whole(0, 2**31 - 1), 0, "How many there are; 0: as many as the store says."),
    lock_delay=may(Number(0, LONGEST), 0.0, "How long the lock stays shut if this lease runs out."),
    at_least=may(
        Number(0, LONGEST),
        0.0,
        "How long the lock stays taken, from its grant, although it is released. Only if it is exclusive.",
    ),
    operation=may(Flag(), False, "It is an operation, whose outcome matters."),
    max_attempts=may(Whole(0, 2**31 - 1), 0, "Failures until everybody is told to give up; 0: no limit."),
    seen=may(Whole(), 0, "The token of a kept result that is not what is wanted: do it again, then."),
    client=may(CLIENT),
    now=NOW,
)
# In another mode there are none to take. For JSON Schema: `acting` reads it so.
ONLY_PERMITS = {
    "if": {"properties": {"mode": {"not": {"const": "permits"}}}, "required": ["mode"]},
    "then": {"properties": {"permits": {"const": 0}, "take": {"const": 1}}},
}
# Only what is exclusive can stay taken.
ONLY_EXCLUSIVE = {
    "if": {"properties": {"at_least": {"exclusiveMinimum": 0}}, "required": ["at_least"]},
    "then": {"properties": {"mode": {"const": "exclusive"}, "permits": {"const": 0}, "take": {"const": 1}}},
}
OUTCOME = fields(
    succeeded=must(Flag()),
    text=must(
        Text(LARGEST_RESULT, 0, multiline=True), "The result as JSON if it succeeded, else what went wrong."
    ),
    keep=may(
        Number(0, LONGEST), 0.0, "For how long a result is told to whoever asks for the operation, from now."
    ),
)
RELEASE = fields(
    attempt=ATTEMPT,
    token=TOKEN,
    # By default: who asks by hand does not know whether a copy of its acquire is still under way somewhere.
    retire=may(Flag(), True, "Remember the attempt, so that a late copy of its acquire takes nothing."),
    outcome=may(OUTCOME, about="How an operation ended."),
    now=NOW,
)
# As short as can be, too: a lease that comes to its max_hold must not spoil the batch that it is in.
LEASE = fields(key=must(Key()), attempt=ATTEMPT, token=TOKEN, ttl=must(Number()))
TICKET = fields(key=must(Key()), attempt=ATTEMPT, patience=must(Number(0, LONGEST_PATIENCE)))
RENEW = fields(
    leases=may(Many(LEASE, MOST_RENEWED), ()), tickets=may(Many(TICKET, MOST_RENEWED), ()), now=NOW
)

_LOCK = "/v1/locks/{key}"

LOCKS: tuple[Route, ...] = (
    Route(
        "acquire",
        "POST",
        f"{_LOCK}/acquire",
        "Take a lock, or wait for it.",
        ((200, "granted"), (200, "done"), (202, "queued")),
        verb="acquire",
        scope="key",
        body=ACQUIRE,
        streams=True,
        problems=(409,),
    ),
    Route(
        "release",
        "POST",
        f"{_LOCK}/release",
        "Give a lock back, or tell how an operation ended.",
        ((200, "released"),),
        verb="acquire",
        scope="key",
        body=RELEASE,
        problems=(409,),
    ),
    Route(
        "withdraw",
        "POST",
        f"{_LOCK}/withdraw",
        "Leave the queue, or give back whatever the attempt has.",
        ((200, "withdrawn"),),
        verb="acquire",
        scope="key",
        body=fields(
            attempt=ATTEMPT,
            held=may(Flag(), False, "The caller has had the lease: its at_least counts, as with a release."),
            now=NOW,
        ),
        problems=(409,),
    ),
    Route(
        "downgrade",
        "POST",
        f"{_LOCK}/downgrade",
        "Make an exclusive lease a shared one.",
        ((200, "granted"),),
        verb="acquire",
        scope="key",
        body=fields(attempt=ATTEMPT, token=TOKEN, now=NOW),
        problems=(409,),
    ),
    Route(
        "renew",
        "POST",
        "/v1/renew",
        "Keep leases and places in queues alive, many at once.",
        ((200, "renewed"),),
        verb="acquire",
        scope="keys",
        body=RENEW,
    ),
    Route(
        "break",
        "POST",
        f"{_LOCK}/break",
        "Take a lock away from whoever holds it.",
        ((200, "broken"),),
        verb="break",
        scope="key",
        body=fields(
            reason=must(Text(1000)),
            by=BY,
            token=may(Whole(), about="Only the lease with this token."),
            now=NOW,
        ),
        problems=(409,),
    ),
    Route(
        "resize",
        "POST",
        f"{_LOCK}/resize",
        "Set how many permits a semaphore has.",
        ((200, "resized"),),
        verb="admin",
        scope="key",
        body=fields(permits=must(Whole(1, 2**31 - 1)), by=BY, now=NOW),
    ),
    Route(
        "list",
        "GET",
        "/v1/locks",
        "Look at many locks, a page at a time.",
        ((200, "page"),),
        verb="observe",
        scope="visible",
        query=fields(
            prefix=may(Key(empty=True), ""),
            owner=may(Text()),
            type=may(Key()),
            state=may(OneOf(get_args(LockState))),
            after=may(Key(empty=True), "", "The last key of the page before."),
            limit=may(LISTED, 100),
            now=NOW,
        ),
    ),
    Route(
        "inspect",
        "GET",
        _LOCK,
        "Look at one lock, its holders and its queue.",
        ((200, "lock_view"),),
        verb="observe",
        scope="key",
        query=fields(now=NOW),
        problems=(404,),
    ),
    Route(
        "history",
        "GET",
        f"{_LOCK}/history",
        "Read what happened to a lock, oldest first.",
        ((200, "events"),),
        verb="observe",
        scope="key",
        query=fields(limit=may(Whole(0, MOST_LISTED), 100)),
    ),
    Route(
        "events",
        "GET",
        "/v1/events",
        "Read what happens, as JSON or as an event stream.",
        ((200, "feed"),),
        verb="observe",
        scope="visible",
        query=fields(
            key=may(Key(), about="Only of this lock."),
            prefix=may(Key(empty=True), about="Only of locks that begin so, unless there is a key."),
            after=may(Whole(), about="Behind the event with this id; 0: from the oldest."),
            limit=may(LISTED, 100),
        ),
        streams=True,
    ),
    Route(
        "signals",
        "GET",
        "/v1/signals",
        "Be woken: an event stream for one client.",
        (),
        verb="acquire",
        scope="anything",
        query=fields(
            instance=may(Text(64, 0, "[0-9A-Za-z_-]*"), ""),
            host=may(Text(), ""),
            pid=may(Whole(0, 2**31 - 1), 0),
        ),
        streams=True,
    ),
)
