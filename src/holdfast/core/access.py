"""Who may do what: access tokens as a store keeps them, and the rights they give.

A right is a verb and a pattern: ``acquire:build:*`` is to acquire all keys that begin with ``build:``,
``observe:nightly`` to look at that one key, ``admin:*`` to do everything. ``admin`` gives all other verbs on
its keys. Not to be confused with a lease's token: an access token says who asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from holdfast.core import keys
from holdfast.core.data import data
from holdfast.core.requests import Request
from holdfast.errors import SettingsError

Verb = Literal["acquire", "observe", "break", "admin"]
VERBS: tuple[Verb, ...] = get_args(Verb)
MOST_RIGHTS = 100  # of one token
PRINCIPAL = "[0-9A-Za-z_.@-]+"  # what a token's name may be: it stands before the names that its bearer uses
LONGEST_PRINCIPAL = 64


@data
class Right:
    """A verb, and the keys it may be used on: one key, or with *prefix* all that begin so."""

    verb: Verb
    key: str
    prefix: bool

    def __str__(self) -> str:
        return f"{self.verb}:{self.key}{'*' if self.prefix else ''}"

    def allows(self, verb: Verb, key: str) -> bool:
        """Tell whether it is enough to use *verb* on *key*."""
        if self.verb not in (verb, "admin"):
            return False
        return key.startswith(self.key) if self.prefix else key == self.key


def parse_right(text: object) -> Right:
    """Read ``verb:key`` or ``verb:prefix*``."""
    verb, colon, pattern = text.partition(":") if isinstance(text, str) else ("", "", "")
    if verb not in VERBS or not colon or not pattern:
        raise SettingsError(
            f"{text!r} is no right; write a verb ({', '.join(VERBS)}), a colon, and a key or prefix*,"
            " for example acquire:build:*"
        )
    prefix = pattern.endswith("*")
    key = pattern.removesuffix("*")
    if key:
        keys.validate(key)
    return Right(verb, key, prefix)


def new_right(text: object) -> Right:
    """Read a right of a token that is made now: a star that would mean itself is refused.

    Older tokens may have such rights, and keep them: for a key that has a star in it.
    """
    right = parse_right(text)
    if "*" in right.key:
        raise SettingsError(
            f"{text!r} is not a valid right: * stands for the rest of a key, so it can only be the last"
            f" character. Write {right.verb}:{right.key.partition('*')[0]}* for all that begin so,"
            " or the whole key"
        )
    return right


def prefixes(rights: Iterable[Right], verb: Verb) -> tuple[Right, ...]:
    """Return the rights to use *verb*, in the order of their keys, without those that others cover."""
    wanted = [right for right in rights if right.verb in (verb, "admin")]
    kept: list[Right] = []
    for right in sorted(wanted, key=lambda right: (right.key, not right.prefix)):
        if not kept or not kept[-1].allows(verb, right.key):
            kept.append(right)
    return tuple(kept)


@data
class AccessToken:
    """An access token as a store keeps it: never the secret itself, only its SHA-256 in hexadecimal."""

    id: str
    name: str  # of whoever has it: a person, a service
    digest: str
    rights: tuple[str, ...]
    created_at: float  # the store's clock
    expires_at: float | None = None


@data
class GrantAccess(Request[AccessToken]):
    """Keep a new access token. Asked twice with the same id, the second changes nothing."""

    id: str
    name: str
    digest: str
    rights: tuple[str, ...]
    ttl: float | None = None  # None: until it is revoked
    now: float | None = None


@data
class RevokeAccess(Request["AccessToken | None"]):
    """Forget an access token, and return it; None if there was none."""

    id: str
    now: float | None = None


@data
class ListAccess(Request[tuple[AccessToken, ...]]):
    """Return all access tokens that have not ended, in the order of their ids."""

    now: float | None = None
