"""Access tokens in their table: granted, revoked and listed, each by one statement."""

from __future__ import annotations

import json

from holdfast.core.access import AccessToken, GrantAccess, ListAccess, RevokeAccess
from holdfast.stores.base import instant, micros
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.rules.runner import Fetch


def grant(fetch: Fetch, request: GrantAccess) -> AccessToken:
    """Keep a token, and return it; or the one that was kept under its id before."""
    about = {"name": request.name, "digest": request.digest, "rights": json.dumps(request.rights)}
    ttl = None if request.ttl is None else micros(request.ttl)
    (row,) = fetch("grant_access", id=request.id, ttl=ttl, now=instant(request.now), **about)
    return _token(row)


def revoke(fetch: Fetch, request: RevokeAccess) -> AccessToken | None:
    """Forget a token, and return it if there was one."""
    return next((_token(row) for row in fetch("revoke_access", id=request.id)), None)


def list_all(fetch: Fetch, request: ListAccess) -> tuple[AccessToken, ...]:
    """Return all tokens that have not ended."""
    return tuple(_token(row) for row in fetch("list_access", now=instant(request.now)))


def _token(row: Row) -> AccessToken:
    number, name, digest, rights, created_at, expires_at = row
    end = None if expires_at is None else expires_at / 1e6
    return AccessToken(number, name, digest, tuple(json.loads(rights)), created_at / 1e6, end)
