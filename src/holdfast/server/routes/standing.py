"""The routes of the server itself: what it is, who may use it, how it is, and its dashboard."""

from __future__ import annotations

from holdfast.core.access import LONGEST_PRINCIPAL, MOST_RIGHTS, PRINCIPAL, VERBS
from holdfast.server.routes.route import NOW, Route, fields, may, must
from holdfast.server.shapes import PRINTABLE, Key, Many, Number, Text, Whole

RIGHT = f"(?:{'|'.join(VERBS)}):{PRINTABLE}{{1,256}}"
TOKEN_ID = "[0-9a-f]{12}"  # noqa: S105 - how ids look, not one of them

GRANT_ACCESS = fields(
    id=must(Text(12, 12, TOKEN_ID)),
    name=must(Text(LONGEST_PRINCIPAL, 1, PRINCIPAL), "Whose it is: a person, a service."),
    digest=must(Text(64, 64, "[0-9a-f]+"), "The SHA-256 of its secret, which is never sent."),
    rights=must(Many(Text(300, 1, RIGHT), MOST_RIGHTS), "Such as acquire:build:* or observe:nightly."),
    ttl=may(Number(0, above=True)),
    now=NOW,
)

STANDING: tuple[Route, ...] = (
    Route(
        "clients",
        "GET",
        "/v1/clients",
        "See who is connected to this server for signals.",
        ((200, "clients"),),
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
        body=fields(
            limit=may(Whole(1, 10_000), 1000),
            after=may(Key(empty=True), ""),
            idle=may(Number(), 3600.0),
            keep_history=may(Number(), 30 * 86400.0),
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
        query=fields(now=NOW),
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
        query=fields(now=NOW),
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
        "Can locks be taken here? That is: does a write work?",
        ((200, "health"), (503, "health")),
        public=True,
    ),
    Route("openapi", "GET", "/openapi.json", "This description.", ((200, "openapi"),), public=True),
    Route("dashboard", "GET", "/", "The dashboard.", ((200, "text/html"),), public=True),
    Route("asset", "GET", "/dashboard/{file}", "Its parts.", ((200, "*/*"),), public=True, problems=(404,)),
)
