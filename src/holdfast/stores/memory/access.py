"""Access tokens, as the memory store keeps them."""

from __future__ import annotations

from holdfast.core.access import AccessToken, GrantAccess, ListAccess, RevokeAccess
from holdfast.stores.base import micros
from holdfast.stores.memory.recording import Recording, store_time
from holdfast.stores.memory.state import Post


class Admitting(Recording):
    """See the module. Each request has the tokens to itself."""

    def _grant_access(self, request: GrantAccess, post: Post) -> AccessToken:
        now = store_time(request.now)
        end = None if request.ttl is None else (now + micros(request.ttl)) / 1e6
        token = AccessToken(request.id, request.name, request.digest, request.rights, now / 1e6, end)
        with self._world.access_mutex:
            return self._world.access.setdefault(request.id, token)

    def _revoke_access(self, request: RevokeAccess, post: Post) -> AccessToken | None:
        with self._world.access_mutex:
            return self._world.access.pop(request.id, None)

    def _list_access(self, request: ListAccess, post: Post) -> tuple[AccessToken, ...]:
        now = store_time(request.now)
        with self._world.access_mutex:
            return tuple(
                token for _, token in sorted(self._world.access.items()) if not has_ended(token, now)
            )


def has_ended(token: AccessToken, now: int) -> bool:
    """Tell whether the end of a token has come."""
    return token.expires_at is not None and micros(token.expires_at) <= now
