"""The directories of a test run: one for each process, and fresh data directories that all of them share.

Not below pytest's own temporary directory, which only its owner may enter: servers that refuse to run as root
run as somebody else. Whatever happens to the tests, a guardian clears up behind them.

A server that need not be durable lives in memory where there is enough: a database of its own for each test
is hundreds of files, which took 35 ms there and 200 ms on a disk.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from tests.servers import guardian

RUN = "PYTEST_XDIST_TESTRUNUID"  # the same in all workers; who has it shares fresh data directories
_MEMORY, _ENOUGH = Path("/dev/shm"), 2 << 30  # containers often have 64 MB there
_mutex = threading.Lock()
_scratches: dict[Path, Scratch] = {}


class Scratch:
    """What this process has on disk: *mine* with its servers, in *run*, which all workers of a run share."""

    def __init__(self, root: Path) -> None:
        name = os.environ.get(RUN) or uuid.uuid4().hex
        self.name, self.pid = name, os.getpid()
        short = name[:12]  # sockets lie below, and the kernel takes no more than 107 bytes for their paths
        self.run = root / f"holdfast-servers-{short}"
        lock = self._enter()
        self.mine = Path(tempfile.mkdtemp(prefix=f"{self.pid}-", dir=self.run))
        self.mine.chmod(0o711)
        self._guardian = subprocess.Popen(
            [sys.executable, "-S", "-E", guardian.__file__, self.mine, self.run, str(lock)],
            stdin=subprocess.PIPE,
            pass_fds=[lock],
            start_new_session=True,  # Ctrl-C is for the tests; who clears up comes after them
            cwd="/",
        )
        os.close(lock)  # the guardian has it, and holds it for us

    def place(self, name: str, account: str | None) -> Path:
        """Make a directory for one server, which belongs to *account*."""
        directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.mine))
        if account is not None:
            entry = pwd.getpwnam(account)
            os.chown(directory, entry.pw_uid, entry.pw_gid)
        return directory

    def copy(self, name: str, account: str | None, build: Callable[[Path], None], target: Path) -> None:
        """Copy what *build* makes to *target*. It is made once in a test run, under *name*."""
        template = self.run / name
        with (self.run / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not template.exists():
                fresh = self.place(name, account)
                build(fresh)
                fresh.rename(template)
        subprocess.run(["cp", "-a", "--reflink=auto", template, target], check=True)

    def close(self) -> None:
        assert self._guardian.stdin is not None
        self._guardian.stdin.close()
        self._guardian.wait()

    def _enter(self) -> int:
        """Share the lock of the run, so that nobody who leaves removes it."""
        while True:
            self.run.mkdir(mode=0o711, exist_ok=True)
            self.run.chmod(0o711)
            try:
                lock = os.open(self.run / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError:  # the last one left at this moment
                continue
            fcntl.flock(lock, fcntl.LOCK_SH)
            if (self.run / "lock").exists() and os.fstat(lock).st_nlink:
                return lock
            os.close(lock)


def scratch(*, durable: bool = False) -> Scratch:
    """Give the directories of this process, made when they are first needed: on disk if *durable*."""
    root = Path(tempfile.gettempdir()).resolve() if durable or not _has_memory() else _MEMORY
    with _mutex:
        if root not in _scratches or _scratches[root].pid != os.getpid():  # a forked child has its own
            _scratches[root] = Scratch(root)
        return _scratches[root]


@atexit.register
def clean() -> None:
    """Kill the servers of this process and remove their files. A forked child leaves its parent's alone."""
    with _mutex:
        for root in list(_scratches):
            mine = _scratches.pop(root)
            if mine.pid == os.getpid():
                mine.close()


@functools.cache
def _has_memory() -> bool:
    return os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ENOUGH


def remove(directory: Path) -> None:
    guardian.clear(directory)
    shutil.rmtree(directory, ignore_errors=True)
