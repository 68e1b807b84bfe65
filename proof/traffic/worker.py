"""A worker process: ``python -m proof.traffic.worker '<config as JSON>'``.

It takes turns in several threads or tasks, and does what it is told on its standard input: ``fork`` a child
that tries to use what it inherited; ``cancel`` or ``interrupt`` some of the turns in the middle; ``clock``,
to tell what its clock shows; ``stop``, which is also what the end of the input means. Errors that no fault
explains are complaints: they are printed, and make the exit status `COMPLAINT`.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from proof.histories.records import BARE, FENCED, RAISED
from proof.traffic.client_clock import tell_clock
from proof.traffic.traffic import Habits

COMPLAINT = 3  # exit status
MARK = "complaint: "  # with which each of them begins

# A request that is not answered is given up soon: the other turns of the process wait for its connection.
_IMPATIENT = {
    "postgresql": {"request_timeout": "3", "connect_timeout": "3"},
    "mysql": {"request_timeout": "3", "connect_timeout": "3"},
    "http": {"timeout": "3", "connect_timeout": "2"},
    "sqlite": {"busy_timeout": "2"},
}


@dataclass(frozen=True)
class Config:
    """What a worker is told when it is started."""

    name: str
    kind: str
    url: str
    seed: str
    folder: str
    resources: dict[str, str]  # kind of resource → url
    threads: int = 4  # or tasks
    habits: dict[str, Any] = field(default_factory=dict)

    @property
    def may_fork(self) -> bool:
        """Whether a child would live: libfaketime's mutex may be held at that moment, for ever."""
        return not under_faketime()

    @property
    def is_async(self) -> bool:
        return self.kind.endswith("async")

    def habits_here(self) -> Habits:
        """Return the habits: nobody can fence a transaction by way of a lock server."""
        habits = Habits(**self.habits)
        usable = [k for k in habits.shares if k in self.resources or k not in (FENCED, RAISED, BARE)]
        kinds = tuple(k for k in usable if k != FENCED or not self.kind.startswith("http"))
        return Habits(**{**self.habits, "kinds": kinds})


class Complaints:
    """What went wrong and should not have."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, error: BaseException | str) -> None:
        self.count += 1
        text = error if isinstance(error, str) else "".join(traceback.format_exception(error))
        os.write(2, f"{MARK}{text.rstrip()}\n\n".encode())


class _ErrorLog(logging.Handler):
    """The library logs as an error what it could not raise to anybody: that is a complaint, too."""

    def __init__(self, complaints: Complaints) -> None:
        super().__init__(logging.ERROR)
        self._complaints = complaints

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1]:
            text += "\n" + "".join(traceback.format_exception(record.exc_info[1]))
        self._complaints.add(text)


def under_faketime() -> bool:
    """Tell whether the wall clock of this process is what a file says."""
    return "faketime" in os.environ.get("LD_PRELOAD", "")


def look_at_clock() -> None:
    """Tell what our clock shows, if it is what a file says."""
    if file := os.environ.get("FAKETIME_TIMESTAMP_FILE"):
        tell_clock(Path(file))


def impatient(url: str) -> str:
    """Return *url* with short timeouts, unless it says something else."""
    scheme = urlsplit(url).scheme
    options = [f"{name}={value}" for name, value in _IMPATIENT[scheme].items() if f"{name}=" not in url]
    return url + ("&" if "?" in url else "?") + "&".join(options) if options else url


def obey(commands: dict[str, Callable[[], None]], complaints: Complaints) -> None:
    """Do what is said on the standard input, until it ends. For a thread of its own.

    Not by way of `sys.stdin`: a thread that waits there holds a mutex that the end of the process needs.
    """
    rest = b""
    while said := os.read(0, 4096):
        *lines, rest = (rest + said).split(b"\n")
        for line in lines:
            try:
                commands[line.decode()]()
            except Exception as error:
                complaints.add(error)
    commands["stop"]()


def main(config: Config) -> int:
    """Work until told to stop; return the exit status."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # whoever waits for us in vain can ask where we are
    if under_faketime():
        # There `time.sleep` fails: it asks for an absolute time of a clock that it does not know is real.
        time.sleep = lambda seconds: select.select([], [], [], float(seconds)) and None
    complaints = Complaints()
    logging.getLogger("holdfast").addHandler(_ErrorLog(complaints))
    logging.getLogger("holdfast").setLevel(logging.ERROR)
    threading.excepthook = lambda told: complaints.add(told.exc_value or str(told.exc_type))
    if config.is_async:
        from proof.traffic.worker_tasks import work
    else:
        from proof.traffic.worker_threads import work
    try:
        work(config, complaints)
    except Exception as error:
        complaints.add(error)
    return COMPLAINT if complaints.count else 0


if __name__ == "__main__":
    given = Config(**json.loads(sys.argv[1]))
    Path(given.folder).mkdir(parents=True, exist_ok=True)
    sys.exit(main(given))
