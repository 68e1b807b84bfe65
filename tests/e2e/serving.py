"""A server as users start it: a process, told by flags, that says on its first lines where it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.support import HOLDFAST

ENOUGH = 30.0  # seconds for whatever takes a moment, on however busy a machine


class Served:
    """A running ``holdfast serve``."""

    def __init__(self, *flags: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> None:
        self.process = subprocess.Popen(
            [*HOLDFAST, "serve", "--port", "0", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
            cwd=cwd,
        )
        self.errors: list[str] = []
        self._arrived = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.greeting = [self._line() for _ in range(5)] if "json" not in flags else []
        self.url = self.greeting[0].split()[-1] if self.greeting else ""

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "".join(self.errors)
        return line.rstrip("\n")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._arrived:
                self.errors.append(line)
                self._arrived.notify_all()

    def logged(self, text: str, times: int = 1) -> str:
        """Wait until *text* is in the log, and return its last line that has it."""
        with self._arrived:
            found = self._arrived.wait_for(
                lambda: sum(text in line for line in self.errors) >= times, timeout=ENOUGH
            )
            assert found, f"{text!r} is not in the log:\n{''.join(self.errors)}"
            return next(line for line in reversed(self.errors) if text in line)

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        return self.ask("GET", path, None, **headers)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=ENOUGH) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(timeout=ENOUGH)
        self._reader.join(ENOUGH)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        return code


@contextmanager
def served(*flags: str, **options: Any) -> Iterator[Served]:
    """Run a server for a while."""
    server = Served(*flags, **options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.wait()
