"""Our own lock server as a process of its own, to be killed, paused and started again on the same port."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.servers.ports import HOST, free_port, is_free

PATIENCE = 40.0

_running: dict[str, str] = {}  # url of a server → url of its store


def store_behind(url: str) -> str:
    """Return the url of the store that is used in the end, by way of a server of ours or not."""
    return _running.get(url, url)


class LockServer:
    """``holdfast serve`` over the store at *store*; what it says is in *log*. A context manager."""

    def __init__(self, store: str, log: Path, *flags: str, **environment: str) -> None:
        self.store = store
        self.port = free_port()
        self.log = log
        self._flags = flags
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._used = False

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and return when it answers. The port stays the same once it was used."""
        deadline = time.monotonic() + PATIENCE
        while not self._try_start(deadline):
            # Somebody took the port while it started. Nobody knows ours before the first start.
            assert not is_free(self.port), self.log.read_text()[-2000:]
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            if not self._used:
                _running.pop(self.url, None)
                self.port = free_port()
        self._used = True

    def _try_start(self, deadline: float) -> bool:
        """Start, and tell whether it answers: true, or false if it has ended instead."""
        while not is_free(self.port):
            if not self._used:
                return False
            assert time.monotonic() < deadline, f"port {self.port} is taken"
            time.sleep(0.01)  # the kernel has not let go of it yet
        _running[self.url] = self.store
        command = [sys.executable, "-m", "holdfast", "serve", "--url", self.store, "--port", str(self.port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
            )
        while not (self._listens() and self.is_ready()):
            if self._process.poll() is not None:
                return False
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(0.02)
        return True

    def _listens(self) -> bool:
        """Tell whether the port is ours: while we start, another server may have taken it, and be ready."""
        listening = {
            f"socket:[{fields[9]}]"
            for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines())
            if fields[1].endswith(f":{self.port:04X}") and fields[3] == "0A"
        }
        with suppress(OSError):  # it has ended, or closes files while we look
            return any(str(file.readlink()) in listening for file in Path(f"/proc/{self.pid}/fd").iterdir())
        return False

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(json.load(answer)["status"] == "ready")
        except (OSError, urllib.error.URLError, ValueError):
            return False

    def kill(self) -> None:
        """Kill it without a chance to say anything."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)

    def stop(self) -> int:
        """Tell it to end, and return its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE)

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self.kill()
