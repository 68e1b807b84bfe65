"""The store behind a lock server: each request is one POST or GET on a connection that is kept.

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
from holdfast.core.cluster import Assign, Claim, Heartbeat, Join, Offer, Offered
from holdfast.core.data import replace
from holdfast.core.requests import Acquire, Client, Renew, Renewed, Request, Signal, Withdraw
from holdfast.core.wire_asked import Asked
from holdfast.stores.base import Awaits, Listener, StoreOptions, Traits, one_by_one
from holdfast.stores.http.answers import answer_of, error_of, server_of
from holdfast.stores.http.connections import Connection, Unsent
from holdfast.stores.http.message import Head, Reply
from holdfast.stores.http.options import HTTPOptions, read_url
from holdfast.stores.http.streams import SignalStream
from holdfast.stores.http.tokens import AccessTokens
from holdfast.stores.http.underway import Underway
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
        self._traits = Traits(
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
        self._underway = Underway()
        self._listener: Listener | None = None
        self._signals = SignalStream(self._begin_stream, lambda: self._underway.missed())

    def __repr__(self) -> str:
        return f"<HTTPStore {str(self._how)!r}>"

    @property
    def traits(self) -> Traits:
        """What is true of the server's store, and of the way to it."""
        return self._traits

    def open(self) -> None:
        """Connect, and ask the server what it is."""
        self._pool.reopen()
        try:
            said = server_of(self._send("GET", "/v1/server"), self._how)
        except BaseException:
            self._pool.close()  # nobody has the client, so nobody would close it
            raise
        store, limits = said["store"], said.get("limits")
        self._traits = Traits(
            durable=bool(store.get("durable")),
            signals=bool(store.get("signals")) and self._how.signals,
            blocking=True,
            repeats=self._how.repeats,
            lanes=self._how.pool_size,
            swept=True,
        )
        most = limits.get("body") if isinstance(limits, dict) else None
        if isinstance(most, int | float) and most >= 1:
            self._most_sent = int(most)

    def execute(self, request: Request[A]) -> A:
        """Have the server answer *request*."""
        if isinstance(request, _REACHABLE):
            return cast("A", self._ask_reachably(request))
        if isinstance(request, Renew):
            return cast("A", self._renew(request))
        if isinstance(request, Offer):
            return cast("A", self._offer(request))
        try:
            answer = self._ask(request)
        finally:
            if isinstance(request, Withdraw):  # asked once, and then the attempt is over whatever comes of it
                self._underway.forget(request)
        self._underway.note(request, answer)
        return cast("A", answer)

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
        if self._traits.signals:
            self._signals.hang_up_bell()

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
        for inherited in list(self._made):  # else the server would not notice when the parent leaves
            inherited.close()
        self._made.clear()
        self._underway = Underway()
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
        answer = self._answer(request, asked, _ENCODE(asked.body))
        self._underway.note(request, answer)
        if is_ours and (now := self._signals.address) and now != address:
            # The stream was opened while we asked: whatever waits there has to learn of it.
            for signal in self._underway.waiting(request):
                self._hear(signal)
        return answer

    def _renew(self, request: Renew) -> Renewed:
        """Renew a batch, in parts if it is too large for the server or for what is before it."""
        can_be_split = len(request.leases) + len(request.tickets) > 1
        asked = wire.ask(request)
        body = _ENCODE(asked.body)
        if not can_be_split or len(body) <= self._most_sent:
            try:
                answer: Renewed = self._answer(request, asked, body)
            except errors.RequestRefused as error:
                if error.status != 413 or not can_be_split:
                    raise
            else:
                self._underway.note(request, answer)
                return answer
        parts = [self._renew(part) for part in _halves(request)]
        return Renewed(
            tuple(lease for part in parts for lease in part.leases),
            tuple(ticket for part in parts for ticket in part.tickets),
        )

    def _offer(self, request: Offer) -> Offered:
        """Offer work, in parts if it is too large for the server or for what is before it."""
        can_be_split = len(request.works) > 1
        asked = wire.ask(request)
        body = _ENCODE(asked.body)
        if not can_be_split or len(body) <= self._most_sent:
            try:
                answer: Offered = self._answer(request, asked, body)
            except errors.RequestRefused as error:
                if error.status != 413 or not can_be_split:
                    raise
            else:
                return answer
        half = len(request.works) // 2
        first = self._offer(replace(request, works=request.works[:half]))
        try:
            second = self._offer(replace(request, works=request.works[half:]))
        except errors.StoreUnavailable as error:
            raise errors.OutcomeUnknown(f"only some of the work was offered: {error}") from error
        return Offered(first.states + second.states, first.new + second.new)

    def _ask(self, request: Request[Any]) -> Any:
        asked = wire.ask(request)
        return self._answer(request, asked, None if asked.body is None else _ENCODE(asked.body))

    def _answer(self, request: Request[Any], asked: Asked, body: str | None) -> Any:
        try:
            reply = self._send(asked.method, asked.path, body, urgent=isinstance(request, Renew))
            return answer_of(request, reply, self._how)
        except errors.OutcomeUnknown as error:
            if asked.method != "GET":
                raise
            raise errors.StoreUnavailable(str(error)) from error  # to look changes nothing

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
        if body is None:
            return token, f"{method} {self._how.prefix}{path} HTTP/1.1\r\n{head}\r\n".encode()
        return token, (
            f"{method} {self._how.prefix}{path} HTTP/1.1\r\n{head}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()

    def _make_head(self, token: str) -> tuple[str, str]:
        lines = [f"Host: {self._how.address}", f"Holdfast-History: {self._level}"]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        return token, "".join(f"{line}\r\n" for line in lines)

    def _connect(self) -> Connection:
        connection = Connection(self._how, self._tls)
        self._made.add(connection)
        return connection

    # Signals.

    def _begin_stream(self) -> tuple[Connection, Head, bytes]:
        """Open a stream of signals on a connection of its own."""
        me = {"instance": self._client.instance, "host": self._client.host, "pid": self._client.pid}
        token, message = self._message("GET", f"/v1/signals?{urlencode(me)}", None)
        connection = self._connect()
        try:
            head, rest = connection.open_stream(message)
            if head.status == 401:
                self._tokens.read_again(token)  # for the next time
            if head.status != 200:
                raise error_of(Reply(head, rest), self._how)
            if head.headers.get(b"content-type", b"").partition(b";")[0].strip() != b"text/event-stream":
                raise errors.StoreMisconfigured(f"{self._how} has no stream of signals")
        except BaseException:
            connection.close()
            raise
        return connection, head, rest

    def _hear(self, signal: Signal) -> None:
        if self._listener is not None:
            for each in self._underway.signals_for(signal):
                self._listener(each)


def _halves(request: Renew) -> tuple[Renew, Renew]:
    leases, tickets = request.leases, request.tickets
    half, ticket_half = (len(leases) + 1) // 2, len(tickets) // 2
    return (
        Renew(leases[:half], tickets[:ticket_half], request.now),
        Renew(leases[half:], tickets[ticket_half:], request.now),
    )
