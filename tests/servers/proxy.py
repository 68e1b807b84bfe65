"""A TCP proxy between a client and a server, to take the network away in every way that matters.

One thread does everything, so a call like `cut` has happened when it returns. What cannot be done here:
reordering and loss of packets. TCP hides those; what a program sees of them is delay, silence and resets.
"""

from __future__ import annotations

import math
import queue
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from tests.servers.ports import HOST, free_port, with_port
from tests.servers.stream import Pair

_RESET = struct.pack("ii", 1, 0)  # linger for no time: closing sends a reset, and drops what was not sent


class Proxy:
    """Pass on what is said between clients of `port` and the server at *host*:*port*, till told otherwise.

    It listens *at* an address of this machine: not the usual one if clients have a network of their own.
    """

    def __init__(self, host: str, port: int, *, at: str = HOST) -> None:
        self._server = (host, port)
        self.at = at
        self._pairs: set[Pair] = set()
        self._late: set[Pair] = set()  # those that have something to pass on later
        self._deaf = self._losing = self._closing = False
        self._delay = 0.0
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._ear, self._mouth = socket.socketpair()
        self._selector.register(self._ear, selectors.EVENT_READ)
        self._listener: socket.socket | None = None
        self.port = 0
        while self._listener is None:
            self.port = free_port()
            with suppress(OSError):  # taken in between
                self._listen()
        self._thread: threading.Thread = threading.Thread(
            target=self._run, name=f"proxy {self.port}", daemon=True
        )
        self._thread.start()

    def through(self, url: str) -> str:
        """Give the *url* of a database of the server as it is called through the proxy."""
        return with_port(url, self.port).replace(f"{HOST}:{self.port}", f"{self.at}:{self.port}")

    @property
    def connections(self) -> int:
        """Tell how many connections pass through now."""
        return len(self._pairs)

    def cut(self) -> None:
        """Reset all connections, on both sides. What was under way is lost. New ones are welcome."""
        self._order(lambda: self._reset(*self._pairs))

    def halve_answers(self) -> None:
        """Break each connection that there is in the middle of what the server says next."""
        self._order(self._halve)

    def point_at(self, host: str, port: int) -> None:
        """Stand before another server from now on: connections to the old one are reset."""
        self._order(lambda: self._point_at(host, port))

    def refuse(self) -> None:
        """Refuse new connections; those that exist go on."""
        self._order(self._hang_up)

    def accept(self) -> None:
        """Take new connections again, on the same port."""
        self._order(self._listen)

    def deaf(self) -> None:
        """Take connections, but pass on nothing, in either direction, not even that one side is gone."""
        self._order(lambda: self._set(deaf=True))

    def hear(self) -> None:
        """Pass on again, also what was said while we were deaf: that is how TCP gets over a partition."""
        self._order(lambda: self._set(deaf=False))

    def lose_answers(self) -> None:
        """Pass on what clients say, and swallow what the server answers, even that it is gone."""
        self._order(lambda: self._set(losing=True))

    def delay(self, seconds: float) -> None:
        """Pass on everything so much later, in either direction: a round trip takes twice as long."""
        self._order(lambda: self._set(delay=seconds))

    def restore(self) -> None:
        """Be a good network again. Connections that lost an answer are reset: their streams have a hole."""
        self._order(self._restore)

    def close(self) -> None:
        if self._thread.is_alive():
            self._order(self._end)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _order(self, action: Callable[[], None]) -> None:
        """Have *action* done by the thread, and pass on what it raises."""
        done, errors = threading.Event(), list[BaseException]()

        def act() -> None:
            try:
                action()
            except BaseException as error:
                errors.append(error)
            finally:
                done.set()

        assert self._thread.is_alive(), "the proxy is closed"
        self._orders.put(act)
        self._mouth.send(b"!")
        done.wait()
        if errors:
            raise errors[0]

    # From here on, everything runs in the thread.

    def _run(self) -> None:
        while not self._closing:
            touched: set[Pair] = set()
            for key, _ in self._selector.select(self._patience()):
                if key.fileobj is self._ear:
                    self._obey(self._ear.recv(4096))
                    touched |= self._pairs
                elif key.fileobj is self._listener:
                    touched |= self._welcome()
                else:
                    touched.add(key.data)
            for pair in (touched | self._late) & self._pairs:
                pair.serve(deaf=self._deaf, losing=self._losing, delay=self._delay)
                if pair.broken:
                    self._reset(pair)
                elif pair.finished:
                    self._forget(pair)
                else:
                    self._watch(pair)

    def _patience(self) -> float | None:
        """Tell how long nothing is due."""
        if self._deaf or not self._late:
            return None
        return max(0.0, min(pair.due for pair in self._late) - time.monotonic())

    def _obey(self, bells: bytes) -> None:
        for _ in bells:
            self._orders.get()()

    def _set(self, deaf: bool | None = None, losing: bool | None = None, delay: float | None = None) -> None:
        self._deaf = self._deaf if deaf is None else deaf
        self._losing = self._losing if losing is None else losing
        self._delay = self._delay if delay is None else delay

    def _halve(self) -> None:
        for pair in self._pairs:
            pair.halving = True

    def _point_at(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._reset(*self._pairs)

    def _restore(self) -> None:
        self._set(deaf=False, losing=False, delay=0.0)
        for pair in self._pairs:
            pair.halving = False
        self._reset(*(pair for pair in self._pairs if pair.lost))
        self._listen()

    def _end(self) -> None:
        self._closing = True
        self._reset(*self._pairs)
        self._hang_up()
        self._selector.close()
        self._ear.close()
        self._mouth.close()

    def _listen(self) -> None:
        if self._listener is None:
            listener = socket.create_server((self.at, self.port), backlog=128)
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
            self._listener = listener

    def _hang_up(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _welcome(self) -> set[Pair]:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:  # it left already
            return set()
        server = socket.socket()
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.connect_ex(self._server)  # whether that works shows when it is used
        pair = Pair(client, server)
        self._pairs.add(pair)
        return {pair}

    def _watch(self, pair: Pair) -> None:
        """Wait for what *pair* can do next, and no more: what nobody reads would wake us for ever."""
        (self._late.discard if pair.due == math.inf else self._late.add)(pair)
        for end, events in pair.wishes(deaf=self._deaf):
            known = self._selector.get_map().get(end)
            if known is None and events:
                self._selector.register(end, events, pair)
            elif known is not None and not events:
                self._selector.unregister(end)
            elif known is not None and known.events != events:
                self._selector.modify(end, events, pair)

    def _reset(self, *pairs: Pair) -> None:
        for pair in pairs:
            for end in (pair.client, pair.server):
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._forget(pair)

    def _forget(self, pair: Pair) -> None:
        self._pairs.discard(pair)
        self._late.discard(pair)
        for end in (pair.client, pair.server):
            with suppress(KeyError):
                self._selector.unregister(end)
            end.close()
