"""A lock server that does not outlive the stage it belongs to, however that ends."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.servers.lock_server import LockServer

# It waits until whoever started it is gone. By then the number may be another process's.
_JANITOR = 'cat >/dev/null; pid=$(cat "$1") && grep -q holdfast "/proc/$pid/cmdline" && kill -9 "$pid"'


class WatchedLockServer(LockServer):
    """``holdfast serve``, of which a janitor knows the process; its number is in a file in *place*."""

    def __init__(self, store: str, log: Path, place: Path, *flags: str, **environment: str) -> None:
        super().__init__(store, log, *flags, **environment)
        self._note = place / "lock-server.pid"
        self._janitor = subprocess.Popen(
            ["sh", "-c", _JANITOR, "sh", self._note],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
            cwd="/",
        )

    def start(self) -> None:
        super().start()
        self._note.write_text(str(self.pid))

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._janitor.kill()
        self._janitor.wait()
        assert self._janitor.stdin is not None
        self._janitor.stdin.close()
