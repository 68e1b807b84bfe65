"""All routes of the server in one table: what they take, what they answer, and what a caller needs for them.

The application dispatches by it, the OpenAPI description is made from it, and the tests of rights walk it, so
that a route cannot be forgotten.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, get_args
from urllib.parse import unquote

from holdfast.core import keys
from holdfast.core.access import LONGEST_PRINCIPAL, MOST_RIGHTS, PRINCIPAL, VERBS, Verb
from holdfast.core.data import data
from holdfast.core.events import HISTORY_LEVELS
from holdfast.core.family import LARGEST_RESULT, Mode
from holdfast.core.requests import DEFAULT_LIMIT, LockState
from holdfast.core.settings import MAX_TTL
from holdfast.errors import InvalidKey, RequestRefused
from holdfast.server.shapes import (
    PRINTABLE,
    REQUIRED,
    Field,
    Fields,
    Flag,
    Key,
    Many,
    Number,
    OneOf,
    Shape,
    Text,
    Whole,
)

# On which keys a caller needs the verb of a route:
#   key         on the one that the path names
#   keys        on each that the body names
#   visible     on some: the answer has only those
#   anything    on some, whichever
#   everywhere  on all there may be
Scope = Literal["key", "keys", "visible", "anything", "everywhere"]

ADDRESS = "(?:[0-9A-Za-z_-]{1,64}(?:/[0-9A-Za-z_-]{1,64})?)?"
# How long a name may be that somebody with an access token gives itself: the token's own stands before it.
LONGEST_OWN = 255 - LONGEST_PRINCIPAL - len("/")
OWN_NAMES = ("owner", "by")
LONGEST_PATIENCE = MAX_TTL  # a dead waiter is in the way of others for no longer
MOST_RENEWED = 4000
MOST_LISTED = 1000
RIGHT = f"(?:{'|'.join(VERBS)}):{PRINTABLE}{{1,256}}"
TOKEN_ID = "[0-9a-f]{12}"  # noqa: S105 - how ids look, not one of them


@data
class Route:
    """One method of one path. Without *verb* whoever is let in may use it; *public*: everybody."""

    name: str
    method: str
    path: str
    about: str
    answers: tuple[tuple[int, str], ...]  # status → the answer's name
    verb: Verb | None = None
    scope: Scope = "anything"
    query: Fields = Fields({})
    body: Fields | None = None
    public: bool = False
    streams: bool = False  # it may answer with an event stream
    problems: tuple[int, ...] = ()  # statuses of its own, beside those that all have


def _fields(**fields: Field) -> Fields:
    return Fields(fields)


def _must(shape: Shape, about: str = "") -> Field:
    return Field(shape, REQUIRED, about)


def _may(shape: Shape, default: object = None, about: str = "") -> Field:
    return Field(shape, default, about)


_TIME = Number(0, 1e11)
NOW = _may(_TIME, about="For tests of the server itself; refused otherwise.")
_ID = Text(300)  # an owner's name and a little more
_ATTEMPT = _must(_ID, "The attempt's id: whoever knows it can release what it holds.")
_TOKEN = _must(Whole(), "The lease's fencing token.")
_BY = _may(Text(), about="Who does it, for the history.")
_LISTED = Whole(1, MOST_LISTED)

CLIENT = _fields(
    instance=_may(Text(129, 0, ADDRESS), "", "Where its signals go: the address from /v1/signals."),
    host=_may(Text(), about="Told to whoever has to wait."),
    pid=_may(Whole(0, 2**31 - 1), 0),
)
ACQUIRE = _fields(
    attempt=_may(_ID, about="A secret of the caller's own, to ask again with; made up if it is missing."),
    owner=_may(Text(), about="Who asks, across attempts: the same owner may enter again."),
    ttl=_may(Number(0, above=True), 30.0, "How long the lease holds without renewal, in seconds."),
    wait=_may(Flag(), False, "Join the queue; 202 with the place in it."),
    timeout=_may(Number(), 0.0, "How long the server waits for the lock before it answers."),
    limit=_may(Whole(1, 1_000_000), DEFAULT_LIMIT, "How often one owner may hold it."),
    patience=_may(
        Number(0, LONGEST_PATIENCE, above=True), 15.0, "How long the place in the queue is kept unasked."
    ),
    claim=_may(
        Number(0, LONGEST_PATIENCE, above=True),
        5.0,
        "How long a lock that was handed over waits for its claim.",
    ),
    mode=_may(OneOf(get_args(Mode)), about="Exclusive, unless there are permits to take."),
    take=_may(Whole(1, 2**31 - 1), 1, "How many permits."),
    permits=_may(Whole(0, 2**31 - 1), 0, "How many there are; 0: as many as the store says."),
    lock_delay=_may(Number(0, 86400.0 * 366), 0.0, "How long the lock stays shut if this lease runs out."),
    operation=_may(Flag(), False, "It is an operation, whose outcome matters."),
    max_attempts=_may(Whole(0, 2**31 - 1), 0, "Failures until everybody is told to give up; 0: no limit."),
    client=_may(CLIENT),
    now=NOW,
)
# In another mode there are none to take. For JSON Schema: `acting` reads it so.
ONLY_PERMITS = {
    "if": {"properties": {"mode": {"not": {"const": "permits"}}}, "required": ["mode"]},
    "then": {"properties": {"permits": {"const": 0}, "take": {"const": 1}}},
}
OUTCOME = _fields(
    succeeded=_must(Flag()),
    text=_must(
        Text(LARGEST_RESULT, 0, multiline=True), "The result as JSON if it succeeded, else what went wrong."
    ),
)
RELEASE = _fields(
    attempt=_ATTEMPT,
    token=_TOKEN,
    # By default: who asks by hand does not know whether a copy of its acquire is still under way somewhere.
    retire=_may(Flag(), True, "Remember the attempt, so that a late copy of its acquire takes nothing."),
    outcome=_may(OUTCOME, about="How an operation ended."),
    now=NOW,
)
# As short as can be, too: a lease that comes to its max_hold must not spoil the batch that it is in.
LEASE = _fields(key=_must(Key()), attempt=_ATTEMPT, token=_TOKEN, ttl=_must(Number()))
TICKET = _fields(key=_must(Key()), attempt=_ATTEMPT, patience=_must(Number(0, LONGEST_PATIENCE)))
RENEW = _fields(
    leases=_may(Many(LEASE, MOST_RENEWED), ()), tickets=_may(Many(TICKET, MOST_RENEWED), ()), now=NOW
)
GRANT_ACCESS = _fields(
    id=_must(Text(12, 12, TOKEN_ID)),
    name=_must(Text(LONGEST_PRINCIPAL, 1, PRINCIPAL), "Whose it is: a person, a service."),
    digest=_must(Text(64, 64, "[0-9a-f]+"), "The SHA-256 of its secret, which is never sent."),
    rights=_must(Many(Text(300, 1, RIGHT), MOST_RIGHTS), "Such as acquire:build:* or observe:nightly."),
    ttl=_may(Number(0, above=True)),
    now=NOW,
)

_LOCK = "/v1/locks/{key}"

ROUTES: tuple[Route, ...] = (
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
        body=_fields(attempt=_ATTEMPT, now=NOW),
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
        body=_fields(attempt=_ATTEMPT, token=_TOKEN, now=NOW),
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
        body=_fields(
            reason=_must(Text(1000)),
            by=_BY,
            token=_may(Whole(), about="Only the lease with this token."),
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
        body=_fields(permits=_must(Whole(1, 2**31 - 1)), by=_BY, now=NOW),
    ),
    Route(
        "list",
        "GET",
        "/v1/locks",
        "Look at many locks, a page at a time.",
        ((200, "page"),),
        verb="observe",
        scope="visible",
        query=_fields(
            prefix=_may(Key(empty=True), ""),
            owner=_may(Text()),
            type=_may(Key()),
            state=_may(OneOf(get_args(LockState))),
            after=_may(Key(empty=True), "", "The last key of the page before."),
            limit=_may(_LISTED, 100),
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
        query=_fields(now=NOW),
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
        query=_fields(limit=_may(Whole(0, MOST_LISTED), 100)),
    ),
    Route(
        "events",
        "GET",
        "/v1/events",
        "Read what happens, as JSON or as an event stream.",
        ((200, "feed"),),
        verb="observe",
        scope="visible",
        query=_fields(
            key=_may(Key(), about="Only of this lock."),
            prefix=_may(Key(empty=True), about="Only of locks that begin so, unless there is a key."),
            after=_may(Whole(), about="Behind the event with this id; 0: from the oldest."),
            limit=_may(_LISTED, 100),
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
        query=_fields(
            instance=_may(Text(64, 0, "[0-9A-Za-z_-]*"), ""),
            host=_may(Text(), ""),
            pid=_may(Whole(0, 2**31 - 1), 0),
        ),
        streams=True,
    ),
    Route(
        "instances",
        "GET",
        "/v1/instances",
        "See who is connected to this server for signals.",
        ((200, "instances"),),
    ),
    Route("server", "GET", "/v1/server", "See what this server is, and who you are.", ((200, "server"),)),
    Route(
        "sweep",
        "POST",
        "/v1/sweep",
        "Settle and forget what is over.",
        ((200, "swept"),),
        verb="admin",
        scope="everywhere",
        body=_fields(
            limit=_may(Whole(1, 10_000), 1000),
            after=_may(Key(empty=True), ""),
            idle=_may(Number(), 3600.0),
            keep_history=_may(Number(), 30 * 86400.0),
            now=NOW,
        ),
    ),
    Route(
        "list_access",
        "GET",
        "/v1/access-tokens",
        "See the access tokens there are.",
        ((200, "access_tokens"),),
        verb="admin",
        scope="everywhere",
        query=_fields(now=NOW),
    ),
    Route(
        "grant_access",
        "POST",
        "/v1/access-tokens",
        "Let somebody in.",
        ((200, "access_token"),),
        verb="admin",
        scope="everywhere",
        body=GRANT_ACCESS,
    ),
    Route(
        "revoke_access",
        "DELETE",
        "/v1/access-tokens/{id}",
        "Let somebody in no more.",
        ((200, "access_token"),),
        verb="admin",
        scope="everywhere",
        query=_fields(now=NOW),
        problems=(404,),
    ),
    Route(
        "metrics",
        "GET",
        "/metrics",
        "Figures for Prometheus.",
        ((200, "text/plain"),),
        verb="observe",
        scope="everywhere",
    ),
    Route("health", "GET", "/healthz", "Is the server alive?", ((200, "health"),), public=True),
    Route(
        "ready",
        "GET",
        "/readyz",
        "Does its store answer?",
        ((200, "health"), (503, "health")),
        public=True,
    ),
    Route("openapi", "GET", "/openapi.json", "This description.", ((200, "openapi"),), public=True),
    Route("dashboard", "GET", "/", "The dashboard.", ((200, "text/html"),), public=True),
    Route("asset", "GET", "/dashboard/{file}", "Its parts.", ((200, "*/*"),), public=True, problems=(404,)),
)
HISTORY = OneOf(HISTORY_LEVELS)

_BY_PATH: dict[str, dict[str, Route]] = {}
for _route in ROUTES:
    _BY_PATH.setdefault(_route.path, {})[_route.method] = _route
_PARAMETERS = tuple(
    sorted(
        {
            (before, name)
            for path in _BY_PATH
            if "{" in path
            for before, _, after in [path.partition("{")]
            for name, _, _ in [after.partition("}")]
        }
    )
)


class WrongMethod(RequestRefused):
    """The path is known, but not with this method."""

    def __init__(self, method: str, path: str, allowed: tuple[str, ...]) -> None:
        self._allowed = allowed
        super().__init__(405, f"{method} cannot be used on {path}; there is {', '.join(allowed)}")

    @property
    def allowed(self) -> str:
        """The methods that can be used."""
        return ", ".join(self._allowed)


@lru_cache(maxsize=4096)  # most keys are asked for again and again; refusals are not kept
def match(method: str, path: str) -> tuple[Route, str]:
    """Return the route of a request, and what its path names: a key, an id, a file."""
    named = ""
    methods = _BY_PATH.get(path)
    if methods is None:
        for before, name in _PARAMETERS:
            if path.startswith(before):
                segment, slash, rest = path[len(before) :].partition("/")
                methods = _BY_PATH.get(f"{before}{{{name}}}{slash}{rest}")
                if methods is not None:
                    named = _decode(segment, name)
                    path = f"{before}{{{name}}}{slash}{rest}"
                break
    if methods is None:
        raise RequestRefused(404, f"there is no {path[:100]!r} here; /openapi.json says what there is")
    route = methods.get("GET" if method == "HEAD" else method)
    if route is None:
        raise WrongMethod(method, path, tuple(sorted({*methods, *(("HEAD",) if "GET" in methods else ())})))
    return route, named


def _decode(segment: str, name: str) -> str:
    try:
        value = unquote(segment, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidKey(segment, "is not UTF-8, percent-encoded") from error
    return keys.validate(value) if name == "key" else value
