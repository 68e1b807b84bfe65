"""What a mutant is put to: tests, or seeds of the simulation, each in a process of its own.

A check that fails has caught something only if it failed as checks do: what does not even run says nothing.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import subprocess
import tempfile
import threading
import uuid
from pathlib import Path

from proof.mutants.copies import ROOT, CannotPlant
from proof.mutants.warm import Warm
from tests.servers import MariaDBServer, PostgresServer
from tests.servers.fixtures import LENT
from tests.servers.scratch import RUN
from tests.servers.server import Server

SEEDS = {"memory": 60, "sqlite": 60}
LOCAL = ("test_memory.py", "test_sqlite*.py", "test_comparison.py")
SUITES = [
    "tests/unit",
    *(str(path.relative_to(ROOT)) for name in LOCAL for path in (ROOT / "tests/conformance").glob(name)),
]
TIMEOUT = 300.0  # only for what hangs: a busy machine takes four times as long as an idle one
OPTIONS = ("-x", "-q", "--tb=short", "-p", "no:cacheprovider")
# A statement that the database does not understand, or a name that Python does not, would fail any test.
NOT_EVEN_RUNS = re.compile(
    r"error that holdfast does not expect|^E +(?:Syntax|Name|Import|Attribute|Type)Error", re.MULTILINE
)


class Lender:
    """Database servers for the tests of each thread: to start one takes longer than most tests do."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self._all: list[Server] = []

    def lend(self, words: str) -> dict[str, str]:
        """Return the environment that tells tests of the servers they may use.

        Those are the ones that *words* call for, and any that are running already.
        """
        if "postgres" in words:
            self._server(PostgresServer)
        if "mysql" in words or "mariadb" in words:
            self._server(MariaDBServer)
        return {LENT.format(kind.program): str(server.port) for kind, server in self._servers().items()}

    def _servers(self) -> dict[type[Server], Server]:
        found: dict[type[Server], Server] = self._mine.__dict__.setdefault("servers", {})
        return found

    def _server(self, kind: type[Server]) -> None:
        servers = self._servers()
        if kind not in servers:
            servers[kind] = kind()
            self._all.append(servers[kind])
            servers[kind].start()

    def give_up(self) -> None:
        """Close the servers of this thread: what a test left behind that was killed is not known."""
        for server in self._servers().values():
            server.close()
        self._servers().clear()

    def close(self) -> None:
        for server in self._all:
            server.close()


def share_fresh_data() -> None:
    """Let all tests that this process runs, and that start servers of their own, share their fresh data."""
    os.environ.setdefault(RUN, uuid.uuid4().hex)


def simulate(source: Path, store: str, seed: int | None = None) -> str | None:
    """Return which invariant the simulation finds broken, if any: by one seed, or the first of many."""
    which = ["--seeds", str(SEEDS[store])] if seed is None else ["--seeds", "1", "--start", str(seed)]
    code, output = python(source, "proof.simulation", *which, "--store", store, "--jobs", "1")
    if code == 0:
        return None
    found = re.search(r"seed (\d+) on \w+ breaks «(.+?)»", output)
    if found is None:  # it does not even run: that is a bad mutant, not a good check
        raise CannotPlant(output)
    return f"simulation: {found[2]} (seed {found[1]})"


def run_tests(
    source: Path, tests: list[str], lender: Lender, *, about: str = "", explain: bool = False
) -> str | None:
    """Return which of the tests fails, if any; *explain*: and print how.

    *about* says in words what they are about, as they do themselves: for that servers are lent.
    """
    servers = lender.lend(" ".join((about, *tests)))
    try:
        # In a folder of its own: pytest looks for old ones to remove, and stumbles over those of others.
        with tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True) as folder:
            where = f"--basetemp={folder}/tests"
            code, output = python(source, "pytest", *OPTIONS, where, *tests, environment=servers)
    except subprocess.TimeoutExpired:
        lender.give_up()
        raise
    if code == 0:
        return None
    found = re.search(r"^FAILED (.+?)(?: - |$)", output, re.MULTILINE)
    if found is None or NOT_EVEN_RUNS.search(output):
        raise CannotPlant(output)
    if explain:
        print(output)
    return f"{'suites' if tests is SUITES else 'test'}: {found[1].split('::')[-1]}"


def python(
    source: Path,
    module: str,
    *arguments: str,
    environment: dict[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> tuple[int, str]:
    """Run a module on a copy of the source; return its exit code, and what it said."""
    return warm().run(
        source,
        module,
        *arguments,
        cwd=ROOT,
        environment={**os.environ, **(environment or {})},
        timeout=timeout,
    )


@functools.cache
def warm() -> Warm:
    """Return the process that all checks are forked from; it ends with this one."""
    process = Warm()
    atexit.register(process.close)
    return process
