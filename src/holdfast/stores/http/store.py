"""A lock server as a store: each request is one POST or GET on a connection that is kept.

It decides nothing. What a request means is the server's business, what to ask again is the plans'; here is
only what was certainly not heard, and what may have been.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

from holdfast import errors
from holdfast.core import wire
from holdfast.core.cluster import Assign, Claim, Heartbeat, Join, Offer
from holdfast.core.data import replace
from holdfast.core.requests import Acquire, Client, Renew, Request, Signal, Watch, Withdraw
from holdfast.core.wire import Asked
from holdfast.stores.base import Awaits, Listener, StoreOptions, Traits, one_by_one
from holdfast.stores.http.answers import answer_of, error_of, server_of
from holdfast.stores.http.attempts import Attempts
from holdfast.stores.http.connections import Connection, Unsent
from holdfast.stores.http.message import Reply
from holdfast.stores.http.options import HTTPOptions, read_url
from holdfast.stores.http.signals import SignalStream
from holdfast.stores.http.tokens import AccessTokens
from holdfast.stores.pool import Pool

A = TypeVar("A")

MOST_SENT = 1024 * 1024  # bytes of a body, until the server says how many it takes
_REACHABLE = (Acquire, Join, Heartbeat, Claim, Assign)  # they say where to tell us more
_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def from_url(url: str, options: StoreOptions) -> HTTPStore:
    """Return the store for ``http://host:7373`` or ``https://host``, see docs/howto/use-a-lock-server.md."""
    how, token = read_url(url)
    return HTTPStore(how, options, AccessTokens(token, how.token_file))


class HTTPStore:
    """See the module. Any number of threads may ask."""

    def __init__(self, how: HTTPOptions, options: StoreOptions, tokens: AccessTokens) -> None:
        if tokens.value and not (how.secure or how.insecure or how.is_local):
            raise errors.SettingsError(
                f"the access token from {tokens.source} would go to {how} in clear text, for everybody on the"
                " way to read: use https://, or add insecure=true to the url if that is what you want"
            )
        self._how = how
        self._tokens = tokens
        self._client = options.client
        self._level = options.history
        self.traits = Traits(
            durable=True,
            signals=how.signals,
            blocking=True,
            repeats=how.repeats,
            lanes=how.pool_size,
            swept=True,
        )
        self._most_sent = MOST_SENT
        self._tls: Any = None
        if how.secure:
            from holdfast.stores.http.tls import TLS  # ssl is slow to import

            self._tls = TLS(how)
        self._head = self._make_head(tokens.value)
        self._made: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._pool = Pool(self._connect, how.pool_size, how.timeout)
        self._attempts = Attempts()
        self._listener: Listener | None = None
        self._signals = SignalStream(self._begin_stream, lambda: self._attempts.missed())

    def __repr__(self) -> str:
        return f"<HTTPStore {str(self._how)!r}>"

    def open(self) -> None:
        """Connect, and ask the server what it is."""
        self._pool.reopen()
        try:
            said = server_of(self._send("GET", "/v1/server"), self._how)
        except BaseException:
            self._pool.close()  # nobody has the client, so nobody would close it
            raise
        store, limits = said["store"], said.get("limits")
        signals = self._how.signals and bool(store.get("signals"))
        tells = signals and bool(store.get("tells_watchers"))
        can = {"durable": bool(store.get("durable")), "signals": signals, "tells_watchers": tells}
        self.traits = replace(self.traits, **can)
        most = limits.get("body") if isinstance(limits, dict) else None
        if isinstance(most, int | float) and most >= 1:
            self._most_sent = int(most)

    def execute(self, request: Request[A]) -> A:
        """Have the server answer *request*."""
        if isinstance(request, _REACHABLE):
            return cast("A", self._ask_reachably(request))
        if isinstance(request, Renew | Offer):
            return cast("A", self._ask_in_parts(request))
        try:
            if isinstance(request, Watch) and request.address:
                return cast("A", self._answer(request, wire.ask(self._watched(request))))
            return cast("A", self._answer(request, wire.ask(request)))
        finally:
            if isinstance(request, Withdraw):  # asked once, and then the attempt is over whatever comes of it
                self._attempts.forget(request)

    def execute_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        """Have the server answer one after the other. It puts what many clients ask into groups by itself."""
        return one_by_one(self, requests)

    def execute_within(self, connection: Any, request: Request[A], awaits: Awaits | None = None) -> A:
        """Refuse: the server's database is not the caller's."""
        raise errors.SettingsError(
            "a lock server has no transactions to be part of: have your database check the lease's token with"
            " raise_token(), or connect to the database of the locks itself"
        )

    def listen(self, listener: Listener) -> None:
        """Call *listener* with the signals for this client."""
        self._listener = listener
        self._signals.listen(self._hear)

    def be_reachable(self) -> None:
        """Have a stream that the server can signal us on."""
        if self.traits.signals:
            self._signals.be_reachable()

    def settle(self) -> None:
        """Wait until all signals that were sent to us are delivered. For tests, which count them."""
        self._send("GET", "/healthz")  # answered after whatever was under way in the server
        self._signals.settle()

    def before_fork(self) -> None:
        """Let nobody be in the middle of taking a connection."""
        self._pool.before_fork()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._pool.after_fork_in_parent()

    def after_fork(self, client: Client) -> None:
        """Become the store of *client* in a forked child, with connections of its own."""
        self._client = client
        self._tokens.after_fork()
        self._pool.after_fork()
        for inherited in list(self._made):  # otherwise the server would not notice when the parent leaves
            inherited.close()
        self._made.clear()
        self._attempts = Attempts()
        self._signals.after_fork(client.instance)

    def close(self) -> None:
        """Stop listening, and close the connections."""
        self._signals.close()
        self._pool.close()

    # Requests.

    def _ask_reachably(self, request: Acquire | Join | Heartbeat | Claim | Assign) -> Any:
        """Ask something, and say where we can be told more about it."""
        self.be_reachable()  # also for a mere try: who gets the lock may have to be told that it was broken
        asked = wire.ask(request)
        address = self._signals.address
        is_ours = request.client.instance.partition("/")[0] == self._client.instance
        if is_ours:  # the server knows us by the stream that we listen to
            asked.body["client"]["instance"] = address  # type: ignore[index]
        answer = self._answer(request, asked)
        if is_ours and (now := self._signals.address) and now != address:
            # The stream was opened while we asked: whatever waits there has to learn of it.
            for signal in self._attempts.waiting(request):
                self._hear(signal)
        return answer

    def _watched(self, request: Watch) -> Watch:
        """Return a look at the feed with the address by which the server knows us, if it has one to tell."""
        address = ""
        if self.traits.tells_watchers and request.address == self._client.instance:
            self.be_reachable()
            address = self._signals.address
        return replace(request, address=address)

    def _ask_in_parts(self, request: Renew | Offer) -> Any:
        """Ask about many things at once, in parts if they are too much for the server, or a proxy."""
        halves = _halves(request)
        asked = wire.ask(request)
        body = _ENCODE(asked.body)
        if halves is None or len(body) <= self._most_sent:
            try:
                return self._answer(request, asked, body)
            except errors.RequestRefused as error:
                if error.status != 413 or halves is None:
                    raise
        first = self._ask_in_parts(halves[0])
        try:
            return _joined(first, self._ask_in_parts(halves[1]))
        except errors.StoreUnavailable as error:
            if isinstance(request, Renew):
                raise
            raise errors.OutcomeUnknown(f"only some of the work was offered: {error}") from error

    def _answer(self, request: Request[Any], asked: Asked, body: str | None = None) -> Any:
        """Return what the server answers, and take note of it."""
        if body is None and asked.body is not None:
            body = _ENCODE(asked.body)
        try:
            reply = self._send(asked.method, asked.path, body, urgent=isinstance(request, Renew))
            answer = answer_of(request, reply, self._how)
        except errors.OutcomeUnknown as error:
            if asked.method != "GET":
                raise
            raise errors.StoreUnavailable(str(error)) from error  # to look changes nothing
        self._attempts.note(request, answer)
        return answer

    def _send(self, method: str, path: str, body: str | None = None, *, urgent: bool = False) -> Reply:
        """Send a request, and return what was answered. Again only if it was certainly not heard."""
        while True:
            token, message = self._message(method, path, body)
            connection = self._pool.take(urgent=urgent)
            try:
                reply = connection.ask(message)
            except Unsent as error:
                self._pool.discard(connection)
                if connection.is_new:
                    raise errors.StoreUnavailable(str(error)) from error
                continue  # it was kept, and has died meanwhile; there are only so many
            except BaseException:
                self._pool.discard(connection)
                raise
            if reply.head.keeps:
                self._pool.give_back(connection)
            else:
                self._pool.discard(connection)
            if reply.head.status != 401:
                return reply
            if not self._tokens.read_again(token):
                raise self._tokens.refused(str(error_of(reply, self._how)))

    def _message(self, method: str, path: str, body: str | None) -> tuple[str, bytes]:
        """Return a request as it is sent, and the access token in it."""
        token, head = self._head
        if token != self._tokens.value:
            token, head = self._head = self._make_head(self._tokens.value)
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return token, f"{method} {self._how.prefix}{path} HTTP/1.1\r\n{head}\r\n{body or ''}".encode()

    def _make_head(self, token: str) -> tuple[str, str]:
        authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        return token, f"Host: {self._how.address}\r\nHoldfast-History: {self._level}\r\n{authorization}"

    def _connect(self) -> Connection:
        connection = Connection(self._how, self._tls)
        self._made.add(connection)
        return connection

    # Signals.

    def _begin_stream(self) -> tuple[Connection, Reply]:
        """Open a stream of signals on a connection of its own."""
        me = {"instance": self._client.instance, "host": self._client.host, "pid": self._client.pid}
        token, message = self._message("GET", f"/v1/signals?{urlencode(me)}", None)
        connection = self._connect()
        try:
            reply = connection.ask(message, stream=True)
            head = reply.head
            if head.status == 401:
                self._tokens.read_again(token)  # for the next time
            if head.status != 200:
                raise error_of(reply, self._how)
            if head.headers.get(b"content-type", b"").partition(b";")[0].strip() != b"text/event-stream":
                raise errors.StoreMisconfigured(f"{self._how} has no stream of signals")
        except BaseException:
            connection.close()
            raise
        return connection, reply

    def _hear(self, signal: Signal) -> None:
        if self._listener is not None:
            for each in self._attempts.signals_for(signal):
                self._listener(each)


def _halves(request: Renew | Offer) -> tuple[Renew, Renew] | tuple[Offer, Offer] | None:
    """Return two requests that ask the same together; None if there is only one thing to ask about."""
    if isinstance(request, Offer):
        works, half = request.works, len(request.works) // 2
        return (replace(request, works=works[:half]), replace(request, works=works[half:])) if half else None
    leases, tickets = request.leases, request.tickets
    if len(leases) + len(tickets) < 2:
        return None
    half, ticket_half = (len(leases) + 1) // 2, len(tickets) // 2
    return (
        Renew(leases[:half], tickets[:ticket_half], request.now),
        Renew(leases[half:], tickets[ticket_half:], request.now),
    )


def _joined(first: Any, second: Any) -> Any:
    """Return the answer to both halves: a field of it has a value for each thing that was asked about."""
    fields = {name: getattr(first, name) + getattr(second, name) for name in type(first).__match_args__}
    return type(first)(**fields)
