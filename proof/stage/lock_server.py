"""A lock server that does not outlive the stage it belongs to, however that ends."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.servers.lock_server import LockServer

# It is told numbers until whoever tells it is gone. The last is the process, if it is not another's by then.
_JANITOR = 'while read -r told; do pid=$told; done; grep -q holdfast "/proc/$pid/cmdline" && kill -9 "$pid"'


class WatchedLockServer(LockServer):
    """``holdfast serve``, of which a janitor knows the process."""

    def __init__(self, store: str, log: Path, *flags: str, **environment: str) -> None:
        super().__init__(store, log, *flags, **environment)
        self._janitor = subprocess.Popen(
            ["sh", "-c", _JANITOR],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
            cwd="/",
        )

    def start(self) -> None:
        super().start()
        assert self._janitor.stdin is not None
        self._janitor.stdin.write(f"{self.pid}\n".encode())
        self._janitor.stdin.flush()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._janitor.kill()
        self._janitor.wait()
        assert self._janitor.stdin is not None
        self._janitor.stdin.close()
