"""A process that has imported what all checks need, and forks one for each: so they begin at once.

It has imported neither holdfast nor tests of ours: those come from the copy that a check is about. It runs as
a script of its own, because whoever asks has threads, and a process with threads is not one to fork.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

IMPORTS = (
    *(
        "pytest",
        "_pytest.assertion.rewrite",
        "hypothesis",
        "psycopg",
        "psycopg_pool",
        "pymysql",
        "pymysql.cursors",
    ),
    *(
        "sqlalchemy",
        "sqlalchemy.ext.asyncio",
        "sqlalchemy.orm",
        "sqlite3",
        "asyncio",
        "ssl",
        "httptools",
        "uvloop",
    ),
    *("http.client", "multiprocessing", "concurrent.futures", "unittest.mock", "logging", "argparse"),
)
PYTEST_LOADS_NOTHING_ELSE = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"  # plugins for other tests take long to load


class Warm:
    """The asking side: any number of threads may `run` checks. Close it in the end."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-warm-")
        self._address = f"{self._folder.name}/asked"
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self._address)
        self._listening.listen(16)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self._listening.fileno())], pass_fds=[self._listening.fileno()]
        )
        self._numbers = iter(range(sys.maxsize))
        self._lock = threading.Lock()

    def run(
        self,
        source: Path,
        module: str,
        *arguments: str,
        cwd: Path,
        environment: dict[str, str],
        timeout: float,
    ) -> tuple[int, str]:
        """Run a module on a copy of the source; return its exit code, and what it said."""
        with self._lock:
            said = Path(self._folder.name) / str(next(self._numbers))
        asked = {
            "source": str(source),
            "module": module,
            "arguments": arguments,
            "cwd": str(cwd),
            "environment": environment,
            "said": str(said),
        }
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(self._address)
            line.sendall(json.dumps(asked).encode() + b"\n")
            answers = line.makefile("r")
            pid = int(answers.readline())
            line.settimeout(timeout)
            try:
                code = int(answers.readline())
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired([module, *arguments], timeout) from None
        return code, said.read_text("utf-8", errors="replace")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listening.close()
        self._folder.cleanup()


def serve(listening: socket.socket) -> None:
    """Fork a process for each who asks; return in that process when it is done with the check."""
    for name in IMPORTS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for their check
    while True:
        line, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked = json.loads(line.makefile("r").readline())
            if (pid := os.fork()) == 0:
                line.close()
                os.setsid()
                check(**asked)
            line.sendall(f"{pid}\n".encode())
            _, status = os.waitpid(pid, 0)
            line.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os._exit(0)
        line.close()


def check(
    source: str, module: str, arguments: list[str], cwd: str, environment: dict[str, str], said: str
) -> None:
    """Be the process that would have been started for this; end by `SystemExit` as it would."""
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(cwd)
    os.environ.update(environment, PYTHONPATH=source, **{PYTEST_LOADS_NOTHING_ELSE: "1"})
    os.environ.pop("PYTEST_ADDOPTS", None)  # they may be for a plugin that is not loaded here
    sys.path[:1] = ["", source]
    holdfast: Any = importlib.import_module("holdfast")
    assert holdfast.__file__.startswith(source), "not the copy"
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
