"""Plant each mutant in a copy of the source, and see that a check fails: ``python -m tests.mutants.run``.

The simulation is asked first, because it is the fastest; what it cannot see (a stepped clock, say) the
unit tests and the conformance suite have to, on memory and SQLite. Flaws in the stores of database servers
name the test that has to fail, on a server that it starts. Fails if a mutant survives or cannot be planted
any more, and if the checks fail without any mutant, which is not looked at again with ``--tested``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.conftest import CI
from tests.mutants.cluster import CLUSTER_MUTANTS, CLUSTER_MUTANTS_ON_SERVERS
from tests.mutants.mutants import MUTANTS, Mutant
from tests.mutants.servers import SERVER_MUTANTS
from tests.mutants.serving import SERVING_MUTANTS, SERVING_MUTANTS_ON_SERVERS
from tests.servers.binaries import PACKAGES, find

LOCAL_MUTANTS = MUTANTS + CLUSTER_MUTANTS + SERVING_MUTANTS
REMOTE_MUTANTS = SERVER_MUTANTS + CLUSTER_MUTANTS_ON_SERVERS + SERVING_MUTANTS_ON_SERVERS

ROOT = Path(__file__).resolve().parents[2]
SEEDS = {"memory": 60, "sqlite": 40}
LOCAL = ("test_memory.py", "test_sqlite*.py", "test_comparison.py")
SUITES = [
    "tests/unit",
    *(str(path.relative_to(ROOT)) for name in LOCAL for path in (ROOT / "tests/conformance").glob(name)),
]
SERVERS = ("postgres", "mariadbd")
TIMEOUT = 180.0  # only for what hangs: a busy machine takes four times as long as an idle one
SERVER_TIMEOUT = 45.0
TESTED = "--tested"
PARTS = 4  # of the named tests, without any mutant
# A statement that the database does not understand, or a name that Python does not, would fail any test.
NOT_EVEN_RUNS = re.compile(
    r"error that holdfast does not expect|^E +(?:Syntax|Name|Import)Error", re.MULTILINE
)


class CannotPlant(Exception):
    """The text that a mutant replaces is not there, or not once; or what comes of it does not run."""


@dataclass
class Verdict:
    mutant: Mutant
    caught_by: str | None
    took: float


def main(names: list[str]) -> int:
    tested = TESTED in names  # a moment ago, without any mutant
    names = [name for name in names if name != TESTED]
    known = LOCAL_MUTANTS + (REMOTE_MUTANTS if _servers_are_there() else ())
    chosen = [mutant for mutant in known if not names or any(name in mutant.name for name in names)]
    if not chosen:
        print("there is no such mutant")
        return 1
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as folder:
        healthy = _copy(ROOT / "src", Path(folder) / "healthy")
        for mutant in chosen:
            plant(mutant, healthy, write=False)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            # No mutant first: what fails anyway catches nothing.
            checks = [] if tested else _everything(chosen)
            flaws = [flaw for flaw in pool.map(lambda check: check(healthy), checks) if flaw]
            if flaws:
                print(f"without any mutant, this fails: {flaws}")
                return 1
            verdicts = list(pool.map(lambda mutant: _judge(mutant, healthy), chosen))
    width = max(len(mutant.name) for mutant in chosen)
    for verdict in verdicts:
        caught = verdict.caught_by or "SURVIVED"
        print(
            f"{verdict.mutant.name:<{width}}  {verdict.mutant.trap:<20}  {caught:<44} {verdict.took:5.1f} s"
        )
    if known == LOCAL_MUTANTS:
        print(f"{len(REMOTE_MUTANTS)} mutants of the database servers were NOT TESTED")
    survivors = sum(verdict.caught_by is None for verdict in verdicts)
    print(f"{len(verdicts) - survivors} of {len(verdicts)} caught, {time.perf_counter() - started:.0f} s")
    return 1 if survivors else 0


def _servers_are_there() -> bool:
    """Tell whether there are servers to be tested on, and loudly if not; under CI they have to be."""
    missing = [f"{program} (package {PACKAGES[program]})" for program in SERVERS if find(program) is None]
    if missing:
        print(f"!!! MISSING: {', '.join(missing)}. Mutants of the database servers are not tested.")
    return CI or not missing


def _judge(mutant: Mutant, healthy: Path) -> Verdict:
    started = time.perf_counter()
    source = _copy(healthy, healthy.parent / re.sub(r"\W+", "-", mutant.name))
    plant(mutant, source, write=True)
    if mutant.test:
        caught = _tests(source, [mutant.test], SERVER_TIMEOUT)
    else:
        caught = _simulate(source, mutant.store) or _tests(source, SUITES)
    shutil.rmtree(source)
    return Verdict(mutant, caught, time.perf_counter() - started)


def _everything(chosen: list[Mutant]) -> list[Callable[[Path], str | None]]:
    """Return the checks that the chosen mutants are put to."""
    checks: list[Callable[[Path], str | None]] = []
    if any(not mutant.test for mutant in chosen):
        checks += [partial(_simulate, store=store) for store in SEEDS]
        checks.append(partial(_tests, tests=SUITES, explain=True))
    named = sorted({mutant.test for mutant in chosen if mutant.test})
    # Each part has a process and servers of its own, as a mutant has.
    parts = (named[part::PARTS] for part in range(PARTS))
    return checks + [partial(_tests, tests=part, explain=True) for part in parts if part]


def _copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def plant(mutant: Mutant, source: Path, *, write: bool) -> None:
    """Change a copy of the source; without *write*, only see whether that could be done."""
    path = source / "holdfast" / mutant.file
    text = path.read_text("utf-8")
    for old, new in mutant.changes:
        if (found := text.count(old)) != 1:
            raise CannotPlant(f"{mutant.name!r}: {mutant.file} has this {found} times, not once:\n{old}")
        text = text.replace(old, new)
    if write:
        path.write_text(text, "utf-8")


def _simulate(source: Path, store: str) -> str | None:
    """Return which invariant the simulation finds broken, if any."""
    arguments = ["--seeds", str(SEEDS[store]), "--store", store, "--jobs", "1"]
    code, output = _python(source, "holdfast.testing.simulation", *arguments)
    if code == 0:
        return None
    found = re.search(r"seed (\d+) on \w+ breaks «(.+?)»", output)
    if found is None:  # it does not even run: that is a bad mutant, not a good check
        raise CannotPlant(output)
    return f"simulation: {found[2]} (seed {found[1]})"


def _tests(source: Path, tests: list[str], timeout: float = TIMEOUT, *, explain: bool = False) -> str | None:
    """Return which of the tests fails, if any; *explain*: and print how."""
    options = ["-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    code, output = _python(source, "pytest", *options, *tests, timeout=timeout)
    if code == 0:
        return None
    found = re.search(r"^FAILED (\S+)", output, re.MULTILINE)
    if found is None or NOT_EVEN_RUNS.search(output):
        raise CannotPlant(output)
    if explain:
        print(output)
    return f"{'suites' if tests is SUITES else 'test'}: {found[1].split('::')[-1]}"


def _python(source: Path, module: str, *arguments: str, timeout: float = TIMEOUT) -> tuple[int, str]:
    """Run a module on a copy of the source; return its exit code, and what it said."""
    script = (
        "import runpy, sys, holdfast;"
        "assert holdfast.__file__.startswith(sys.argv[1]), 'not the copy';"
        "sys.argv = sys.argv[2:];"
        "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    )
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(source), module, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
