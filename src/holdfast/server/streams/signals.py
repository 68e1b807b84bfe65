"""Wake-ups for the clients of this server: each has a stream, and an address that its requests carry.

The address is ours, a slash, and a name for the stream. Whichever server behind a balancer writes it into a
ticket, the store delivers the signal to us, and we to the stream. Signals are hints: what is sent into a
stream that has just broken is lost, and nothing depends on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.clock import boot_time
from holdfast.core.requests import Signal
from holdfast.server.admission.access import Principal, unscoped
from holdfast.server.backend import Backend
from holdfast.server.http import sse
from holdfast.server.http.message import Stream

# Tells whether somebody may enter by a hand-over, and takes note that they will.
MayEnter = Callable[[Principal, Signal], bool]

DRAINING = "the server is going away; connect again, and ask again for all that you wait for"


@dataclass(eq=False)
class SignalStream:
    """One client that can be woken."""

    streams: SignalStreams
    stream: Stream
    principal: Principal
    instance: str
    host: str
    pid: int
    name: str = field(default_factory=lambda: os.urandom(8).hex())
    connected_at: float = field(default_factory=boot_time)

    def send(self, data: bytes) -> None:
        """Send, or take note that nobody is there any more."""
        if not self.stream.send(data):
            self.left()

    def beat(self) -> None:
        """Say that we are still there."""
        self.send(sse.heartbeat())

    def left(self) -> None:
        """Take note that the peer has gone."""
        self.streams.remove(self)

    def dismiss(self, reason: sse.Reason, detail: str) -> None:
        """End the stream."""
        self.left()
        self.stream.end(sse.goodbye(reason, detail))


class SignalStreams:
    """See the module. To be used from one event loop."""

    def __init__(
        self,
        backend: Backend,
        *,
        heartbeats: sse.Heartbeats | None = None,
        may_enter: MayEnter = lambda *_: True,
    ) -> None:
        self._backend = backend
        self._may_enter = may_enter
        self._heartbeats = heartbeats or sse.Heartbeats()
        self.sent = 0  # signals
        self._streams: dict[str, SignalStream] = {}
        backend.listen(self._signalled)

    @property
    def count(self) -> int:
        """How many clients are connected."""
        return len(self._streams)

    def open(
        self, stream: Stream, principal: Principal, *, instance: str = "", host: str = "", pid: int = 0
    ) -> str:
        """Send *stream* the signals for its address, which is returned; only of keys it may acquire.

        That there are events it is told if it may see any.
        """
        client = SignalStream(self, stream, principal, instance, host, pid)
        self._streams[client.name] = client
        self._heartbeats.add(client.beat)
        stream.on_gone = client.left
        address = self._address(client)
        client.send(sse.event("hello", {"address": address, "server": self._backend.instance}))
        return address

    def own(self, address: str, principal: Principal) -> str:
        """Return *address* if it is that of a stream which they have here, otherwise none.

        Whoever may only look must not fill the store with addresses.
        """
        home, _, name = address.partition("/")
        client = self._streams.get(name) if home == self._backend.instance else None
        return address if client is not None and client.principal.name == principal.name else ""

    def listing(self) -> Iterator[dict[str, Any]]:
        """Return who is connected."""
        now = boot_time()
        for client in self._streams.values():
            yield {
                "instance": client.instance,
                "host": client.host,
                "pid": client.pid,
                "principal": client.principal.name,
                "address": self._address(client),
                "connected_for": now - client.connected_at,
            }

    def remove(self, client: SignalStream) -> None:
        """Send it nothing any more."""
        if self._streams.pop(client.name, None) is not None:
            self._heartbeats.remove(client.beat)

    def revoke(self, token_id: str) -> None:
        """End the streams of an access token that is not valid any more."""
        for client in list(self._streams.values()):
            if client.principal.token_id == token_id:
                client.dismiss("revoked", sse.REVOKED)

    def drain(self) -> None:
        """End all streams: their clients connect again, to another server or to the next one here."""
        for client in list(self._streams.values()):
            client.dismiss("draining", DRAINING)

    def _address(self, client: SignalStream) -> str:
        return f"{self._backend.instance}/{client.name}"

    def _signalled(self, signal: Signal) -> None:
        client = self._streams.get(signal.to)
        if client is not None and (attempt := _told(client.principal, signal)) is not None:
            told = {
                "kind": signal.kind,
                "key": signal.key,
                "attempt": attempt,
                "expires_in": signal.expires_in,
            }
            if signal.token and self._may_enter(client.principal, signal):
                told |= {"token": signal.token, "at": signal.at}
            client.send(sse.event("signal", told))
            self.sent += 1


def _told(principal: Principal, signal: Signal) -> str | None:
    """Return the attempt that they are told of, or the instance as they call it; None if it is not theirs."""
    if signal.kind == "events":
        return "" if principal.any("observe") else None
    if signal.kind == "work":
        return unscoped(principal, signal.attempt) if principal.covers("acquire", signal.key) else None
    return signal.attempt if principal.may("acquire", signal.key) else None
