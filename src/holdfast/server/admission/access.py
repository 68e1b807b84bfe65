"""Who asks, and what they may: access tokens as a server knows them.

The tokens are in the store, so that all servers on it have the same. A server reads them when it starts,
every two seconds from then on, and at once when somebody shows one that it does not know. Which of them have
ended is said by the store, whose clock is the only one that counts. Of the secrets there are only hashes,
here as there.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import hmac
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from holdfast.core.access import AccessToken, ListAccess, Right, Verb, parse_right, prefixes
from holdfast.core.data import data
from holdfast.core.plans import Clock
from holdfast.core.wire.route import LONGEST_OWN
from holdfast.errors import (
    AccessDenied,
    HoldfastError,
    NotAuthenticated,
    SettingsError,
    StoreError,
    StoreUnavailable,
)
from holdfast.log import log
from holdfast.server.admission.browsers import refuse_other_sites
from holdfast.server.admission.failures import Failures
from holdfast.server.admission.safety import is_loopback
from holdfast.server.backend import Backend
from holdfast.server.http.message import HTTPRequest
from holdfast.server.settings import ServerSettings

EVERY = 2.0  # seconds from one reading of the tokens to the next
LOOK_AGAIN = 1.0  # not more often than this because of tokens that nobody knows
TRUSTED = 300.0  # seconds without an answer of the store, until what it said last counts no more

_BEARER = re.compile(r"(?i:bearer) +hf_([0-9a-f]{12})_([0-9A-Za-z_-]{43})")
_NOBODY = hashlib.sha256(b"").digest()  # of no secret: those have 43 characters


@data
class Principal:
    """Somebody who asks: whose token it is, and what it is good for."""

    name: str
    rights: tuple[Right, ...]
    token_id: str = ""

    def may(self, verb: Verb, key: str) -> bool:
        """Tell whether they may use *verb* on *key*."""
        for right in self.rights:  # noqa: SIM110 - any() of a generator takes twice as long
            if right.allows(verb, key):
                return True
        return False

    def require(self, verb: Verb, key: str) -> None:
        """Refuse if they may not use *verb* on *key*, whether or not there is such a lock."""
        if not self.may(verb, key):
            raise AccessDenied(
                f"{self.name or 'nobody'} has no right to {verb} {key!r}:"
                f" ask for an access token that allows {verb}:{key}"
            )

    def everywhere(self, verb: Verb) -> bool:
        """Tell whether they may use *verb* on every key there may be."""
        return self.covers(verb, "")

    def any(self, verb: Verb) -> bool:
        """Tell whether there is any key that they may use *verb* on."""
        return any(right.verb in (verb, "admin") for right in self.rights)

    def covers(self, verb: Verb, type: str) -> bool:
        """Tell whether they may use *verb* on all keys of a type. Of the empty one: on all there may be."""
        start = f"{type}:" if type else ""
        return any(right.prefix and right.allows(verb, start) for right in self.rights)

    def ranges(self, verb: Verb) -> tuple[Right, ...]:
        """Return the keys that they may use *verb* on, in order, without overlaps."""
        return prefixes(self.rights, verb)


ANYONE = Principal("", (Right("admin", "", prefix=True),))  # when nobody is asked who they are


def scoped(principal: Principal, name: str) -> str:
    """Return a name that a caller gives itself as others see it: it is theirs, and can be nobody else's.

    Whoever knows an owner's name may enter its lease. So it is not enough to know it: one has to be it.
    """
    if not principal.name:
        return name
    if len(name) > LONGEST_OWN:
        raise SettingsError(
            f"{name[:60]!r}… has {len(name)} characters; {LONGEST_OWN} are allowed, because the name of the"
            " access token stands before it"
        )
    return f"{_plain(principal)}/{name}"


def unscoped(principal: Principal, name: str) -> str | None:
    """Return a name that `scoped` has made as the caller knows it; None if it is somebody else's."""
    if not principal.name:
        return name
    before = f"{_plain(principal)}/"
    return name.removeprefix(before) if name.startswith(before) else None


def own_name(principal: Principal, attempt: str, secret: bytes) -> str:
    """Return the owner of an attempt for which nobody gave one.

    The same for the same attempt, so that asking again is the same owner asking, on whichever server of a
    store. There is no way back from it: not even for attempts so short that all could be tried, because
    nobody knows the *secret* of the store.
    """
    short = hmac.digest(secret, attempt.encode("utf-8", "surrogatepass"), "sha256").hex()[:12]
    return f"{_plain(principal) or 'anonymous'}-{short}"


def _plain(principal: Principal) -> str:
    # Otherwise a/b of one principal could be b of another.
    return principal.name.replace("%", "%25").replace("/", "%2F")


class Access:
    """See the module. To be used from one event loop."""

    def __init__(self, backend: Backend, settings: ServerSettings, *, clock: Clock = time.monotonic) -> None:
        self.required = settings.auth == "required"
        self._backend = backend
        self._settings = settings
        self._clock = clock
        self._here = is_loopback(settings.host)
        self._tokens: dict[str, _Known] = {}
        self._listed: tuple[AccessToken, ...] = ()
        self._times = 0  # that they were read
        self._asked = self._answered = -1e9  # when they were asked for last, and with success
        self._error: StoreError | None = None
        self._reading = asyncio.Lock()
        self._failing = False
        self._failures = Failures(clock)
        self._callbacks: list[Callable[[str], None]] = []
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        asked = "who asks must say who they are" if self.required else "nobody is asked"
        return f"<Access: {len(self._tokens)} tokens, {asked}>"

    @property
    def tokens(self) -> int:
        """How many access tokens there are."""
        return len(self._tokens)

    async def open(self) -> None:
        """Read the tokens, and go on reading them. Decide whether they are needed."""
        await self.reload()
        if not self._settings.insecure_no_authentication:
            # Beyond this machine always, whatever there is: nobody gets in is better than everybody does.
            self.required = self.required or not self._here
            self._task = asyncio.get_running_loop().create_task(self._keep_reading(), name="holdfast-access")

    async def close(self) -> None:
        """Read them no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def on_revoked(self, callback: Callable[[str], None]) -> None:
        """Call *callback* with the id of a token that is gone, or gives other rights than before.

        With an empty id for whoever came in while nobody was asked, when that is over.
        """
        self._callbacks.append(callback)

    async def authenticate(self, request: HTTPRequest) -> Principal:
        """Return who asks; raise `NotAuthenticated`, and `TooManyRequests` for those who only guess."""
        if self._may_be_news(request):
            await self.reload(LOOK_AGAIN)
        principal = self._recognise(request)
        if principal is None:
            # Also for a token that is known and has another secret: so the time it takes tells nothing.
            self._failures.count(request.remote)
            await self.reload(LOOK_AGAIN)
            principal = self._recognise(request)
        if principal is None:
            raise NotAuthenticated("this access token is not valid: mistyped, revoked, or at its end")
        return principal

    def recognise(self, request: HTTPRequest) -> Principal | None:
        """Return who asks, or raise as `authenticate` does; None if the tokens have to be read for that."""
        return None if self._may_be_news(request) else self._recognise(request)

    def _may_be_news(self, request: HTTPRequest) -> bool:
        """Tell whether somebody shows a token though nobody is asked: perhaps the first was made just now."""
        if self.required or "authorization" not in request.headers:
            return False
        return self._clock() > self._asked + LOOK_AGAIN

    def _recognise(self, request: HTTPRequest) -> Principal | None:
        header = request.headers.get("authorization")
        if not self.required:
            insecure = self._settings.insecure_no_authentication
            refuse_other_sites(request.headers, here=self._here and not insecure)
            return ANYONE
        if header is None:
            raise NotAuthenticated("no access token was given; send it as 'Authorization: Bearer hf_…'")
        found = _BEARER.fullmatch(header)
        if found is None:
            self._failures.count(request.remote)
            raise NotAuthenticated("this is no access token; one looks like 'Bearer hf_ID_SECRET'")
        if self._clock() - self._answered > TRUSTED:
            raise StoreUnavailable(
                f"the store has not answered for more than {TRUSTED:g} s, so it is not known who may do what"
            )
        return self._check(found[1], found[2])

    async def reload(self, pause: float = 0.0) -> None:
        """Read the tokens again, not sooner than *pause* seconds after the last time.

        What was being read already may be older than the question.
        """
        before = self._times
        async with self._reading:
            if self._times == before:  # otherwise somebody who waited with us has done it
                wait = self._asked + pause - self._clock()
                if wait > 0:
                    await asyncio.sleep(wait)
                self._times += 1
                self._asked = asked = self._clock()
                self._error = None
                try:
                    tokens = await self._backend.ask(ListAccess())
                except StoreError as error:
                    self._error = error
                else:
                    self._answered = asked
                    self._learn(tokens)
            if self._error is not None:
                raise copy.copy(self._error)  # each one collects its traceback

    def _check(self, id: str, secret: str) -> Principal | None:
        known = self._tokens.get(id)
        # An id that nobody has takes as long as one that somebody has.
        expected = _NOBODY if known is None else known.digest
        same = hmac.compare_digest(hashlib.sha256(secret.encode("ascii")).digest(), expected)
        return known.principal if same and known is not None else None

    def _learn(self, tokens: tuple[AccessToken, ...]) -> None:
        if tokens == self._listed:
            return
        before, self._listed = self._tokens, tokens
        self._tokens = {token.id: known for token in tokens if (known := _known(token)) is not None}
        over = [id for id, known in before.items() if known != self._tokens.get(id)]
        if self._tokens and not self.required and not self._settings.insecure_no_authentication:
            self.required = True  # and it stays so, even when the last token is revoked
            over.append("")
        for id in over:
            for callback in self._callbacks:
                try:
                    callback(id)
                except Exception:  # noqa: BLE001 - one stream that cannot be ended must not keep the others open
                    log().exception("could not end what access token %s had open", id or "(none)")

    async def _keep_reading(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.reload()
            except StoreError as error:
                if not self._failing:
                    log().warning("cannot read the access tokens; those that are known stay valid: %s", error)
                self._failing = True
            except Exception:  # noqa: BLE001 - whoever is revoked later would stay in for ever
                log().exception("cannot read the access tokens")
            else:
                self._failing = False


@dataclass(repr=False, slots=True)
class _Known:
    """A token, ready to be compared. It does not show what it is compared with."""

    digest: bytes
    principal: Principal


def _known(token: AccessToken) -> _Known | None:
    """Return a token as it is used; None if it cannot be. A right that we do not understand gives nothing."""
    rights = []
    for text in token.rights:
        try:
            rights.append(parse_right(text))
        except HoldfastError:
            log().warning(
                "access token %s has the right %r, which this release does not know", token.id, text
            )
    try:
        digest = bytes.fromhex(token.digest)
    except ValueError:
        digest = b""
    if len(digest) != len(_NOBODY) or digest == _NOBODY or not token.name:
        log().warning("access token %s cannot be used: it has no name, or no hash of a secret", token.id)
        return None
    return _Known(digest, Principal(token.name, tuple(rights), token.id))
