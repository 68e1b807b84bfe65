"""The routes of the server itself: what it is, who may use it, how it is, and its dashboard."""

from __future__ import annotations

from typing import Any

from holdfast.core import access
from holdfast.core.requests import Probe, Sweep
from holdfast.core.wire.fields import may, must
from holdfast.core.wire.route import Route
from holdfast.core.wire.shapes import PRINTABLE, Key, Many, Number, Text, Whole

RIGHT = f"(?:{'|'.join(access.VERBS)}):{PRINTABLE}{{1,256}}"
TOKEN_ID = "[0-9a-f]{12}"  # noqa: S105 - how ids look, not one of them

GRANT_ACCESS = {
    "id": must(Text(12, 12, TOKEN_ID)),
    "name": must(Text(access.LONGEST_PRINCIPAL, 1, access.PRINCIPAL), "Whose it is: a person, a service."),
    "digest": must(Text(64, 64, "[0-9a-f]+"), "The SHA-256 of its secret, which is never sent."),
    "rights": must(
        Many(Text(300, 1, RIGHT), access.MOST_RIGHTS), "Such as acquire:build:* or observe:nightly."
    ),
    "ttl": may(Number(0, above=True)),
}
SWEEP = {
    "limit": may(Whole(1, 10_000), 1000),
    "after": may(Key(empty=True), ""),
    "idle": may(Number(), 3600.0),
    "keep_history": may(Number(), 30 * 86400.0),
}

_TOKENS = "/v1/access-tokens"


def _admin(*what: Any, **more: Any) -> Route:
    """Return the route of what only administrators do."""
    return Route(*what, verb="admin", scope="everywhere", **more)


SYSTEM: tuple[Route, ...] = (
    Route("clients", "GET", "/v1/clients", "See who is connected to this server for signals.", "clients"),
    Route("server", "GET", "/v1/server", "See what this server is, and who you are.", "server"),
    _admin(
        "sweep", "POST", "/v1/sweep", "Settle and forget what is over.", "swept", Sweep, SWEEP, events=True
    ),
    _admin(
        "list_access", "GET", _TOKENS, "See the access tokens there are.", "access_tokens", access.ListAccess
    ),
    _admin(
        "grant_access", "POST", _TOKENS, "Let somebody in.", "access_token", access.GrantAccess, GRANT_ACCESS
    ),
    _admin(
        *("revoke_access", "DELETE", f"{_TOKENS}/{{id}}", "Let somebody in no more.", "access_token"),
        access.RevokeAccess,
        problems=(404,),
    ),
    Route(
        *("metrics", "GET", "/metrics", "Figures for Prometheus.", "text/plain"),
        verb="observe",
        scope="everywhere",
    ),
    Route("health", "GET", "/healthz", "Is the server alive?", "health", public=True),
    Route(
        *("ready", "GET", "/readyz", "Can locks be taken here? That is: does a write work?"),
        ("health", (503, "health")),
        Probe,
        left_out=("now",),
        public=True,
    ),
    Route("openapi", "GET", "/openapi.json", "This description.", "openapi", public=True),
    Route("dashboard", "GET", "/", "The dashboard.", "text/html", public=True),
    Route("asset", "GET", "/dashboard/{file}", "Its parts.", "*/*", public=True, problems=(404,)),
)
