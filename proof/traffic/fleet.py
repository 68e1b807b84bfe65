"""The worker processes of a run: started together, killed, paused and replaced, and stopped in the end.

What a worker does is in `worker` and `traffic`. Each one writes down its calls in a file of its own under
``calls/``, and what it has to complain of under ``complaints/``: an error that no fault explains, for which
`Fleet.stop` raises.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from proof.histories.records import BARE, CALLS, FENCED, RAISED
from proof.traffic.traffic import settings
from proof.traffic.worker import MARK, Config
from tests.servers.binaries import faketime

if TYPE_CHECKING:
    from proof.stage.stage import Stage

Kind = Literal["sync", "async", "http-sync", "http-async"]

ROOT = Path(__file__).parents[2]
PATIENCE = 40.0  # seconds until a worker that was told to stop must have stopped

# Those with a clock of their own never fork: libfaketime may have a mutex at that moment, for ever.
WITHOUT_CLOCK: tuple[Kind, ...] = ("sync", "async", "http-sync")
WITH_CLOCK: tuple[Kind, ...] = ("sync", "async", "http-async")
QUICK_WITH_CLOCK: tuple[Kind, ...] = ("http-async",)
# On SQLite a fence stops all who write, also its own renewal: nobody may be slow there.
HABITS: dict[str, dict[str, Any]] = {"sqlite": {"longest_fence": 0.1}}


class FleetFailed(AssertionError):
    """A worker met with an error that no fault explains, or did not stop."""


class Process:
    """One worker process."""

    def __init__(self, config: Config, environment: Mapping[str, str], clock: Path | None) -> None:
        self.config = config
        self.name = config.name
        self.kind: Kind = config.kind  # type: ignore[assignment]
        self.clock = (
            clock  # what its libfaketime reads: "+3600" sets it an hour ahead, "+0 x1.5" makes it fast
        )
        self.killed = False
        self.complaints = Path(config.folder) / "complaints" / f"{self.name}.txt"
        self._calls = Path(config.folder) / CALLS / f"{self.name}.jsonl"
        self.complaints.parent.mkdir(parents=True, exist_ok=True)
        with self.complaints.open("wb") as complaints:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "proof.traffic.worker", json.dumps(asdict(config))],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=complaints,
                stderr=complaints,
                env={**os.environ, **environment},
                start_new_session=True,  # so that its forked children can be found when it is dead
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        return self._process.poll()

    @property
    def has_begun(self) -> bool:
        """Whether it has made a call."""
        return self._calls.exists() and self._calls.stat().st_size > 0

    def send(self, command: str) -> None:
        """Tell it something: "fork", "cancel", "interrupt", "clock", "stop". A dead one does not hear it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{command}\n".encode())
            self._process.stdin.flush()

    def kill(self) -> None:
        """Kill it without a chance to say anything, and see it dead."""
        self.killed = self.killed or self.alive
        self._process.kill()
        self._process.wait(PATIENCE)

    def pause(self) -> None:
        """Stop it in the middle of whatever it does, and see it stopped. Not its forked children."""
        self._process.send_signal(signal.SIGSTOP)
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended by itself
            while self.alive and "\nState:\tT" not in Path(f"/proc/{self.pid}/status").read_text():
                time.sleep(0.001)

    def go_on(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def finish(self, deadline: float) -> str:
        """See it end, by force after the *deadline*. Return what it has to complain of."""
        complaint = ""
        try:
            self._process.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGUSR1)  # it prints where it is
            time.sleep(1.0)
            self._process.kill()
            self._process.wait(PATIENCE)
            complaint = "it did not stop"
        self._end_children(deadline)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        said = self.complaints.read_text(errors="replace")
        if MARK in said:  # also of one that was killed later
            complaint = complaint or "it met with what no fault explains"
        elif not self.killed and self.status != 0:
            complaint = complaint or f"it ended with status {self.status}"
        return f"{self.name}: {complaint}\n{said}" if complaint else ""

    def _end_children(self, deadline: float) -> None:
        """See its forked children gone: they end by themselves, also when their parent was killed."""
        with suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.killpg(self.pid, 0)
                time.sleep(0.02)
            os.killpg(self.pid, signal.SIGKILL)


class Fleet:
    """The worker processes of a run."""

    def __init__(self, stage: Stage, *, seed: int, folder: Path, quick: bool) -> None:
        self.workers: list[Process] = []
        self._stage = stage
        self._seed = seed
        self._folder = folder
        self._quick = quick
        self._gone: list[Process] = []  # those that were replaced
        self._count = 0

    @property
    def settings(self) -> dict[str, Any]:
        """What the traffic is like, for those who judge and show it."""
        chosen = settings()
        return {
            "ttl": chosen.ttl,
            "heartbeat": chosen.heartbeat,
            "claim": chosen.claim,
            "patience": chosen.patience,
            "processes": [*WITHOUT_CLOCK, *(QUICK_WITH_CLOCK if self._quick else WITH_CLOCK)],
            "threads": Config.threads,
        }

    def start(self) -> None:
        """Start all of them at once, and return when each has made its first call."""
        self.workers += [self._launch(kind, {}, clock=False) for kind in WITHOUT_CLOCK]
        with_clock = QUICK_WITH_CLOCK if self._quick else WITH_CLOCK
        self.workers += [self._launch(kind, {}, clock=True) for kind in with_clock]
        wait_until(lambda: all(each.has_begun or not each.alive for each in self.workers))

    def replace(self, process: Process, **environment: str) -> Process:
        """Start a worker of the same kind, under a new name, in the place of one that is dead.

        In the namespaces of the thread that calls this.
        """
        new = self._launch(process.kind, environment, clock=process.clock is not None)
        self.workers[self.workers.index(process)] = new
        self._gone.append(process)
        return new

    def stop(self) -> None:
        """Let all of them finish the turn they are in. Raise `FleetFailed` if one has a complaint."""
        for process in self.workers:
            with suppress(ProcessLookupError):
                process.go_on()
            process.send("stop")
        deadline = time.monotonic() + PATIENCE
        complaints = [process.finish(deadline) for process in [*self.workers, *self._gone]]
        self.workers, self._gone = [], []
        if any(complaints):
            raise FleetFailed("\n".join(filter(None, complaints)))

    def _launch(self, kind: Kind, environment: Mapping[str, str], *, clock: bool) -> Process:
        self._count += 1
        stage = self._stage
        name = f"{kind}-{self._count}"
        config = Config(
            name=name,
            kind=kind,
            url=stage.url("http" if kind.startswith("http") else "direct"),
            seed=str(self._seed),
            folder=str(self._folder),
            resources={each: stage.resource_url(each) for each in (FENCED, RAISED, BARE)},
            habits=HABITS.get(stage.store, {}),
        )
        file = self._clock_of(name) if clock and self._may_have_a_clock(kind) else None
        return Process(config, _joined(stage.client_environment, _faked(file), environment), file)

    def _may_have_a_clock(self, kind: Kind) -> bool:
        """Tell whether a worker can have a clock of its own: with SQLite, its clock is the store's."""
        return faketime() is not None and (self._stage.store != "sqlite" or kind.startswith("http"))

    def _clock_of(self, name: str) -> Path:
        clock = self._folder / "clocks" / name
        clock.parent.mkdir(parents=True, exist_ok=True)
        clock.write_text("+0\n")
        return clock


def _faked(clock: Path | None) -> dict[str, str]:
    """Return the environment in which the wall clock is what a file says, and all others are right."""
    if clock is None:
        return {}
    return {
        "LD_PRELOAD": str(faketime()),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",  # else it reads the file each time a thread waits for another
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def _joined(*environments: Mapping[str, str]) -> dict[str, str]:
    """Return all of them in one. Libraries to be loaded first are loaded all."""
    joined: dict[str, str] = {}
    for environment in environments:
        for name, value in environment.items():
            before = joined.get(name) if name == "LD_PRELOAD" else None
            joined[name] = f"{before}:{value}" if before else value
    return joined


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for something that workers have to do when they begin."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise FleetFailed("the workers do not begin")
        time.sleep(0.01)
