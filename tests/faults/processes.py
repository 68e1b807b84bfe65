"""Real processes to be killed, stopped and interrupted, and to be talked to through pipes.

A `Worker` runs the lines it is sent, one after the other, and answers each: ``worker.do("x = 1")`` waits for
the answer, ``worker.begin(...)`` does not and `worker.answer()` does. What a line assigns to ``_`` is the
answer. So every step of a test is a hand-shake, and nothing sleeps in the hope that something has happened.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast import Holdfast, LockView, Settings
from holdfast.stores.sql.options import split_url
from tests.servers.lock_server import store_behind

PATIENCE = 40.0  # seconds until a test gives up on something that should happen soon

# Small enough that a test can wait for them, large enough for a loaded machine.
TTL = 1.5
HEARTBEAT, CLAIM, TICKET = 0.3, 1.5, 3.0
SETTINGS = f"Settings(heartbeat={HEARTBEAT}, claim={CLAIM}, patience={TICKET})"
SLACK = 20.0  # for starting threads and processes while two cores are shared with others
# For those who have to keep their places whatever the machine does meanwhile.
PATIENT = f"Settings(heartbeat={HEARTBEAT}, claim=30.0, patience=60.0)"

MAIN = """
    import asyncio, json, os, signal, sys, threading, time, traceback
    from holdfast import *

    url = sys.argv[1]
    locks = Holdfast(url, settings=eval(sys.argv[2]))
    scope = globals()
    answers = os.fdopen(os.dup(1), "w", buffering=1)

    def answer(**fields):
        answers.write(json.dumps(fields, default=str) + "\\n")

    def is_reachable(locks):
        store = locks._engine.store
        if not store.traits.tells_holders:
            store.be_reachable()
        signals = store.signals if hasattr(store, "signals") else store._signals
        return signals._bell is not None if hasattr(signals, "_bell") else signals._ready.is_set()

    def interrupt(*_):  # Ctrl-C is for the lines that run, not for the reader of lines
        if busy:
            raise KeyboardInterrupt

    def run(code):
        scope["_"] = None
        try:
            busy.append(True)
            exec(code, scope)
            busy.clear()
            return dict(ok=scope["_"])
        except SystemExit:
            raise
        except BaseException as error:
            busy.clear()
            return dict(error=type(error).__name__, text=str(error), trace=traceback.format_exc())

    busy = []
    signal.signal(signal.SIGINT, interrupt)
    answer(ok=os.getpid())
    while line := sys.stdin.readline():
        try:
            result = run(json.loads(line))
        except KeyboardInterrupt:
            result = dict(error="KeyboardInterrupt", text="", trace="")
        answer(**result)
"""


class Failed(AssertionError):
    """The line raised an error in the worker."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.error = answer["error"]
        self.text = answer["text"]
        super().__init__(answer["trace"])


class Worker:
    """A process that holds locks."""

    def __init__(
        self,
        url: str,
        *,
        wait: bool = True,
        settings: str = SETTINGS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._url = url
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(MAIN), url, settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if wait:
            self.answer()

    @property
    def pid(self) -> int:
        return self.process.pid

    def begin(self, code: str) -> None:
        """Send some lines to run, and go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(textwrap.dedent(code)) + "\n")
        self.process.stdin.flush()

    def answer(self, timeout: float = PATIENCE) -> Any:
        """Return what became of the lines that were sent first and not asked about yet."""
        try:
            line = self._answers.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"no answer from process {self.pid} in {timeout} s") from None
        if not line:
            raise AssertionError(f"process {self.pid} has ended: {self.errors()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer)
        return answer["ok"]

    def do(self, code: str, timeout: float = PATIENCE) -> Any:
        """Run some lines, and return their answer."""
        self.begin(code)
        return self.answer(timeout)

    def answered(self) -> bool:
        return not self._answers.empty()

    def acquire(self, key: str = "nightly", ttl: float = TTL, **options: Any) -> int:
        """Take a lock, as ``lease``; return its token."""
        return int(self.do(f"lease = locks.acquire({key!r}, ttl={ttl}, **{options!r}); _ = lease.token"))

    def queue(self, key: str = "nightly", ttl: float = TTL, **options: Any) -> None:
        """Begin to wait for a lock; `answer` will be its token."""
        self.begin(f"lease = locks.acquire({key!r}, ttl={ttl}, **{options!r}); _ = lease.token")

    def release(self) -> None:
        self.do("lease.release()")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def interrupt(self) -> None:
        """Press Ctrl-C, and again when nothing happens.

        A signal that arrives just before a call enters the kernel to sleep is noticed when it comes back.
        """
        deadline = time.monotonic() + PATIENCE
        while not self.answered() and time.monotonic() < deadline:
            self.send(signal.SIGINT)
            pause = time.monotonic() + 1.0
            while not self.answered() and time.monotonic() < pause:
                time.sleep(0.005)

    def terminate(self) -> int:
        """Tell it to end, and again when nothing happens; return its exit status."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.send(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(4.0)
        raise AssertionError(f"process {self.pid} does not end")

    def kill(self) -> None:
        """Kill it without a chance to say anything, and see it dead."""
        self.send(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def stop(self) -> None:
        """Stop it in the middle of whatever it does, and see it stopped.

        But not while it writes to a file: SQLite would keep everybody out until it goes on.
        """
        while True:
            self.send(signal.SIGSTOP)
            self.until_stopped()
            if can_be_written(self._url):
                return
            self.go_on()

    def until_stopped(self) -> None:
        eventually(lambda: is_stopped(self.pid))

    def until_asleep(self) -> None:
        """Wait until its main thread is past the request that others see the effect of, and waits."""

        def switches() -> str:
            return Path(f"/proc/{self.pid}/task/{self.pid}/status").read_text().partition("\nvoluntary")[2]

        before = ""
        while before != (before := switches()):
            time.sleep(0.15)

    def until_reachable(self) -> None:
        """Wait until signals for its client arrive."""
        eventually(lambda: self.do("_ = is_reachable(locks)"))

    def go_on(self) -> None:
        self.send(signal.SIGCONT)

    def end(self) -> int:
        """Let it run out of lines, and return its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE)

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def close(self) -> None:
        """Leave no process behind, whatever state it is in."""
        self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put("")


class House:
    """One store, the workers on it, and a client of our own to look with."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder  # for what else a test writes down
        self.locks = Holdfast(
            self.url, settings=Settings(heartbeat=HEARTBEAT, claim=CLAIM, patience=TICKET, sweep_every=None)
        )
        self._workers: list[Worker] = []

    def worker(
        self, *, url: str | None = None, wait: bool = True, settings: str = SETTINGS, **environment: str
    ) -> Worker:
        worker = Worker(url or self.url, wait=wait, settings=settings, environment=environment)
        self._workers.append(worker)
        return worker

    def workers(self, number: int, *, url: str | None = None, settings: str = SETTINGS) -> list[Worker]:
        """Start several at once, and wait for all of them."""
        workers = [self.worker(url=url, wait=False, settings=settings) for _ in range(number)]
        for worker in workers:
            worker.answer()
        return workers

    def look(self, key: str = "nightly") -> LockView:
        view = self.locks.inspect(key)
        assert view is not None, f"{key} was never used"
        return view

    def until_waiting(self, number: int, key: str = "nightly") -> None:
        eventually(lambda: self.look(key).waiting == number)

    @property
    def path(self) -> Path:
        """The file, if the store is one."""
        return Path(self.url.removeprefix("sqlite:///"))

    def bells(self) -> set[str]:
        folder = self.path.with_name(f"{self.path.name}-bells")
        return {bell.name for bell in folder.iterdir()} if folder.is_dir() else set()

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self.locks.close()


def can_be_written(url: str) -> bool:
    """Tell whether somebody else can write; only of SQLite's files, where one transaction has all of it."""
    if not url.startswith("sqlite:///"):
        return True
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=1)) as file:
        try:
            file.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:  # locked
            return False
        file.execute("ROLLBACK")
    return True


@contextmanager
def nobody_can_write(url: str) -> Iterator[Callable[[], None]]:
    """Keep everybody from writing, as somebody's long transaction would; reading goes on.

    Gives a function that ends it, for those who cannot wait for the end of the block.
    """
    url = store_behind(url)
    scheme = url.partition(":")[0]
    connection: Any
    if scheme == "sqlite":
        connection = sqlite3.connect(
            url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False
        )
        connection.execute("BEGIN IMMEDIATE")
    elif scheme == "postgresql":
        import psycopg

        connection = psycopg.connect(split_url(url)[0])
        connection.execute("LOCK TABLE holdfast_locks IN EXCLUSIVE MODE")
    else:
        import pymysql

        parts = urlsplit(url)
        connection = pymysql.connect(
            host=parts.hostname, port=parts.port or 0, user=parts.username, database=parts.path[1:]
        )
        connection.cursor().execute("SELECT count(*) FROM holdfast_locks FOR UPDATE")
    try:
        yield connection.rollback
    finally:
        connection.rollback()
        connection.close()


def eventually(true: Callable[[], Any], within: float = PATIENCE) -> Any:
    """Return the first true answer to a question about another process."""
    deadline = time.monotonic() + within
    while not (answer := true()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)
    return answer


def is_stopped(pid: int) -> bool:
    """Tell whether all threads of a process are stopped: the first may be, while another still writes."""
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended just now
            states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return set(states) == {"T"}
