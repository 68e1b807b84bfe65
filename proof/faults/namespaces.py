"""A network of its own for one process: two namespaces, a cable between them, and a door in the second.

A process that is started `inside` the first reaches the same ports of 127.0.0.1 as everybody else, but by the
cable, which can be pulled at either end: at the door's it is silence, at the process's its own kernel knows.
The door is a listener in the second namespace, whose process (ours) has one foot in the real network. Needs
root; makes nothing in the real network that would have to be undone there.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

from tests.servers import Proxy
from tests.servers.ports import HOST

End = Literal["door", "client"]

_CLONE_NEWNET = 0x40000000
_JANITOR = 'cat >/dev/null; for name; do ip netns delete "$name"; done'
_NETWORKS = {"client": "10.213.7.2/30", "door": "10.213.7.1/30"}  # only they can see each other's


def missing() -> str | None:
    """Tell what is missing for networks of their own; None: nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
        return "network namespaces need ip, from the package iproute2"
    trial = f"proof-{uuid.uuid4().hex[:8]}"
    made = subprocess.run(["ip", "netns", "add", trial], capture_output=True, text=True)
    if made.returncode:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    _ip("netns", "delete", trial)
    return None


class Cable:
    """Two namespaces and what joins them. A context manager; nothing is left, even if we are killed."""

    def __init__(self, *ports: int) -> None:
        """*ports* are those of 127.0.0.1 that can be reached from inside."""
        name = f"proof-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._names = {end: f"{name}-{end}" for end in _NETWORKS}
        self._ports = ports
        self._doors: list[Proxy] = []

    def __enter__(self) -> Self:
        # It removes them when we tell it to, and also when we are gone without a word.
        self._janitor = subprocess.Popen(
            ["sh", "-c", _JANITOR, "sh", *self._names.values()],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # one that was never made
            start_new_session=True,  # Ctrl-C is not for it
        )
        try:
            self._lay()
            self._doors = [_Door(self._names["door"], port) for port in self._ports]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for door in self._doors:
            door.close()
        assert self._janitor.stdin is not None
        self._janitor.stdin.close()
        self._janitor.wait()  # the cable goes with them, as soon as nobody is inside

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Let processes that this thread starts in the block live at the client's end."""
        with _in(self._names["client"]):
            yield

    @contextmanager
    def pulled(self, end: End) -> Iterator[None]:
        """Pull the cable out at one end for the time of the block."""
        _ip("-n", self._names[end], "link", "set", "cable", "down")
        try:
            yield
        finally:
            _ip("-n", self._names[end], "link", "set", "cable", "up")
            self._set_route()

    def _lay(self) -> None:
        for name in self._names.values():
            _ip("netns", "add", name)
        ends = [("name", "cable", "netns", self._names[end]) for end in ("client", "door")]
        _ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        for end, network in _NETWORKS.items():
            name = self._names[end]
            _ip("-n", name, "address", "add", network, "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")
            # 127.0.0.1 may come and go by the cable.
            with _in(name):
                Path("/proc/sys/net/ipv4/conf/cable/route_localnet").write_text("1")
        # At the client's end there is no loopback, so that its 127.0.0.1 is the door's.
        _ip("-n", self._names["door"], "link", "set", "lo", "up")
        self._set_route()

    def _set_route(self) -> None:
        """Send what is for 127.0.0.1 over the cable. The kernel forgets it when the link is down."""
        source = _NETWORKS["client"].partition("/")[0]
        route = (f"{HOST}/32", "dev", "cable", "src", source)
        _ip("-n", self._names["client"], "route", "replace", *route)


class _Door(Proxy):
    """Passes on what comes to the port in a namespace to the same port of the real network."""

    def __init__(self, namespace: str, port: int) -> None:
        self._namespace, self._wanted = namespace, port
        super().__init__(HOST, port)

    def _listen(self) -> None:
        self.port = self._wanted
        with _in(self._namespace):  # a socket stays where it was made
            super()._listen()


@contextmanager
def _in(namespace: str) -> Iterator[None]:
    """Be in a network namespace, with this thread only."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        _set_namespace(there)
        try:
            yield
        finally:
            _set_namespace(here)
    finally:
        os.close(here)
        os.close(there)


def _set_namespace(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
