"""What all servers have in common: a directory, a port, a process, and ways to make that process suffer.

A subclass says how to set up the directory, what to run and how to see that it answers. Servers may be
started and stopped from any thread, by one thread at a time.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.servers import guardian
from tests.servers.binaries import need
from tests.servers.ports import free_port, is_free
from tests.servers.scratch import remove, scratch

PATIENCE = 40.0  # seconds; two cores are shared with other tests


class ServerFailed(Exception):
    """A server did not start, or a program that sets one up failed."""


class Server(ABC):
    """A server that belongs to one test or one test run. As a context manager it starts, and is removed."""

    program: ClassVar[str]
    accounts: ClassVar[tuple[str, ...]]  # who runs it if we are root: the first of them that exists
    stopping: ClassVar[signal.Signals]
    durable = False  # it lives on a disk, and waits for it

    def __init__(
        self, settings: Mapping[str, str | int] | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        need(self.program)
        self.settings: dict[str, str | int] = {**self.defaults(), **(settings or {})}
        self.environment = dict(environment or {})
        self.account = _account(self.accounts)
        self.port = free_port()
        self.directory = scratch(durable=self.durable).place(self.program, self.account)
        self.log = self.directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._quiet = 0  # where in the log this start begins
        self._used = False  # somebody may know the port

    @abstractmethod
    def defaults(self) -> dict[str, str | int]:
        """Tell the settings that `settings` may override."""

    @abstractmethod
    def prepare(self) -> None:
        """Write what the next start needs: the data, if there is none yet, and the settings."""

    @abstractmethod
    def command(self) -> list[str | Path]: ...

    @abstractmethod
    def is_ready(self) -> bool: ...

    @property
    def place(self) -> Path:
        """Tell the working directory of the process."""
        return self.directory

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self} was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start, and return when it answers. The port stays the same once it was used."""
        assert not self.is_running, f"{self} runs already"
        deadline = time.monotonic() + PATIENCE
        while not self._try_start(deadline):
            if is_free(self.port) or time.monotonic() > deadline:
                raise ServerFailed(f"{self} did not start; {self.log} ends with:\n{self.tail()}")
            # Somebody took the port. Nobody knows ours before the first start, later on we have to wait.
            if self._used:
                time.sleep(0.05)
            else:
                self.port = free_port()
        self._used = True

    def stop(self) -> None:
        """Shut down in an orderly way, without waiting for clients. The data stays."""
        if self.is_running and self._process is not None:
            self.resume()
            self._process.send_signal(self.stopping)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
                raise ServerFailed(f"{self} did not stop:\n{self.tail()}") from None

    def kill(self) -> None:
        """Kill all its processes at once, and return when none is left. The data stays as it is."""
        if self._process is not None:
            # Its own process first, and only while it is ours: once reaped, its number may be another's.
            guardian.clear(self.directory, *([self.pid] if self.is_running else []))
            self._process.wait()

    def restart(self) -> None:
        """Stop and start on the same port; after a `kill`, only start."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop all its processes with SIGSTOP. The kernel goes on accepting connections for it."""
        stopped: set[int] = set()
        while (found := guardian.send(self.directory, signal.SIGSTOP)) != stopped:
            stopped = found  # look again: one of them may have forked just before

    def resume(self) -> None:
        guardian.send(self.directory, signal.SIGCONT)

    def close(self) -> None:
        """Kill it and remove its data."""
        self.kill()
        remove(self.directory)

    def tail(self, lines: int = 30) -> str:
        return (
            "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""
        )

    def has_said(self, words: str) -> bool:
        """Tell whether *words* are in its log, since it was started."""
        return words.encode() in self.log.read_bytes()[self._quiet :]

    def call(self, command: Iterable[str | Path], place: Path, input: str = "") -> None:
        """Run a program that sets something up, as the user that runs the server."""
        done = subprocess.run(
            list(command), input=input, capture_output=True, text=True, **self._as_user(place)
        )
        if done.returncode:
            raise ServerFailed(f"{' '.join(map(str, done.args))} failed:\n{done.stdout}{done.stderr}")

    def write(self, file: Path, text: str) -> None:
        """Write a *file* for the user that runs the server."""
        file.write_text(text)
        if self.account is not None:
            shutil.chown(file, self.account)

    def __enter__(self) -> Self:
        try:
            if not self.is_running:
                self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on port {self.port}, {'running' if self.is_running else 'down'}>"

    def _try_start(self, deadline: float) -> bool:
        self.prepare()
        with self.log.open("ab") as log:
            self._quiet = log.tell()
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests
                **self._as_user(self.place, self.environment),
            )
        try:
            while self.is_running and time.monotonic() < deadline:
                if self.is_ready():
                    return True
                time.sleep(0.01)
        except BaseException:
            self.kill()
            raise
        self.kill()
        return False

    def _as_user(self, place: Path, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("PG", "MYSQL"))
        }
        options: dict[str, Any] = {
            "cwd": place,
            "env": {**inherited, "HOME": str(self.directory), "LC_ALL": "C", **(environment or {})},
        }
        if self.account is not None:
            group = pwd.getpwnam(self.account).pw_gid
            options |= {"user": self.account, "group": group, "extra_groups": [], "umask": 0o077}
        return options


def _account(names: Iterable[str]) -> str | None:
    """Choose who runs a server that refuses to run as root. None: we do."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in (*names, "nobody") if name in known)
