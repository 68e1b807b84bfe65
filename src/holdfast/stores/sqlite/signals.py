"""Doorbells: how one process wakes another that waits for a lock in the same file.

Each client that holds or waits has a Unix datagram socket in a directory beside the file, named after its
instance. Ringing is one non-blocking send: nobody listening, a full buffer or a dead process cost
nothing, because every signal is only a hint. Where there are no such sockets, waiters learn what
happened at their next heartbeat.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from holdfast.core.requests import WATCHERS, Signal, addressed
from holdfast.signal_mask import block_signals
from holdfast.stores.signals import Signals, as_text
from holdfast.stores.sqlite.watchers import Watchers

SUPPORTED = hasattr(socket, "AF_UNIX")
LONGEST_ADDRESS = 100  # the kernel's limit is 108 bytes on Linux, 104 on macOS
STOP = b""


class Doorbells(Signals):
    """Rings other clients of the file, and listens for our own bell once somebody holds or waits."""

    def __init__(self, file: Path, instance: str) -> None:
        self._file = file
        self._directory = file.with_name(f"{file.name}-bells")
        self._room = LONGEST_ADDRESS - len(os.fsencode(self._directory)) - 1  # for the name of a bell
        self.instance = instance
        self._watchers = Watchers(file)
        self._mutex = threading.Lock()
        self._ringer: socket.socket | None = None
        self._bell: socket.socket | None = None
        self._folder_fd: int | None = None

    def be_reachable(self) -> None:
        """Make sure that we can be woken. Called before a ticket of ours is committed, and by the keeper."""
        if self._bell is not None or self._listener is None or not SUPPORTED:
            return
        with self._mutex:
            if self._bell is not None:
                return
            bell = None
            try:
                self._directory.mkdir(exist_ok=True)
                address = self._address(self.instance)
                bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                bell.bind(address)
                Path(address).chmod(self._file.stat().st_mode & 0o777)  # whoever may write may ring
                self._bell = bell
                threading.Thread(
                    target=self._answer, args=(bell,), name="holdfast-doorbell", daemon=True
                ).start()
            except (OSError, RuntimeError):  # no bell: heartbeats will have to do
                self._bell = None
                if bell is not None:
                    bell.close()
                    self._remove(self.instance)

    @property
    def hears(self) -> bool:  # type: ignore[override]
        """Whether we have a bell."""
        return self._bell is not None

    def expect_events(self, address: str) -> bool:
        """Have *address* rung for the next event, if we can be."""
        return self.reaches(address) and self._watchers.add(address)

    def tell(self, signals: Iterable[tuple[str, Signal]]) -> None:
        """Ring all who are concerned."""
        for instance, signal in signals:
            if instance == WATCHERS:
                for address in self._watchers.take():
                    self.ring(*addressed(address, signal))
            else:
                self.ring(instance, signal)

    def ring(self, instance: str, signal: Signal) -> None:
        """Tell a client something. Never fails, never waits."""
        if instance == self.instance:
            self.deliver(signal)
            return
        if not SUPPORTED or not instance:
            return
        try:
            self._get_ringer().sendto(as_text(signal).encode(), self._address(instance))
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:  # its process is gone and left the socket behind
                self._remove(instance)

    def sweep(self, limit: int) -> None:
        """Remove the bells of dead processes, at most *limit*."""
        if not SUPPORTED or not self._directory.is_dir():
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe, suppress(OSError):
            for name in os.listdir(self._directory)[:limit]:
                if name != self.instance:
                    try:
                        probe.connect(self._address(name))
                    except ConnectionRefusedError:
                        self._remove(name)
                    except OSError:
                        continue

    def after_fork(self, instance: str) -> None:
        """Forget the parent's bell in a forked child, and leave its socket file alone."""
        for inherited in (self._bell, self._ringer):
            if inherited is not None:
                inherited.close()
        self._bell = self._ringer = None
        self._mutex = threading.Lock()
        self.instance = instance

    def close(self) -> None:
        """Take our bell down."""
        with self._mutex:
            bell, self._bell = self._bell, None
            if bell is not None:
                with suppress(OSError):  # wakes its thread, even where somebody has removed the socket's file
                    bell.shutdown(socket.SHUT_RD)
                with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stopper:
                    stopper.sendto(STOP, self._address(self.instance))
                self._remove(self.instance)
                self._watchers.remove(self.instance)
            if self._ringer is not None:
                self._ringer.close()
                self._ringer = None
            if self._folder_fd is not None:
                os.close(self._folder_fd)
                self._folder_fd = None

    def _answer(self, bell: socket.socket) -> None:
        block_signals()
        with bell:
            while True:
                message = bell.recv(4096)
                if self._bell is not bell:
                    return
                self.deliver_text(message)

    def _get_ringer(self) -> socket.socket:
        if self._ringer is None:
            with self._mutex:
                if self._ringer is None:
                    ringer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                    ringer.setblocking(False)
                    self._ringer = ringer
        return self._ringer

    def _address(self, instance: str) -> str:
        if len(instance) <= self._room:
            return f"{self._directory}/{instance}"
        # Too long for a socket's address. On Linux the directory has a short name as well.
        if self._folder_fd is None:
            self._folder_fd = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._folder_fd}/{instance}"

    def _remove(self, instance: str) -> None:
        with suppress(OSError):
            os.unlink(self._directory / instance)
