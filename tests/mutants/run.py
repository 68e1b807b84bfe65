"""Plant each mutant in a copy of the source, and see that a check fails: ``python -m tests.mutants.run``.

The simulation is asked first, because it is the fastest; what it cannot see (a stepped clock, say) the
unit tests and the conformance suite have to. Fails if a mutant survives or cannot be planted any more, and if
the checks fail without any mutant.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
SEEDS = {"memory": 60, "sqlite": 40}
SUITES = [name for name in ("tests/unit", "tests/conformance") if any((ROOT / name).glob("**/test_*.py"))]
TIMEOUT = 60.0


class CannotPlant(Exception):
    """The text that a mutant replaces is not there, or not once; or what comes of it does not run."""


@dataclass
class Verdict:
    mutant: Mutant
    caught_by: str | None
    took: float


def main(names: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not names or any(name in mutant.name for name in names)]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as folder:
        healthy = _copy(Path(folder) / "healthy")
        for mutant in chosen:
            plant(mutant, healthy, write=False)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            # No mutant first: what fails anyway catches nothing.
            flaws = [flaw for flaw in pool.map(lambda check: check(healthy), _everything()) if flaw]
            if flaws:
                print(f"without any mutant, this fails: {flaws}")
                return 1
            verdicts = list(pool.map(lambda mutant: _judge(mutant, Path(folder)), chosen))
    width = max(len(mutant.name) for mutant in chosen)
    for verdict in verdicts:
        caught = verdict.caught_by or "SURVIVED"
        print(
            f"{verdict.mutant.name:<{width}}  {verdict.mutant.trap:<20}  {caught:<44} {verdict.took:5.1f} s"
        )
    survivors = sum(verdict.caught_by is None for verdict in verdicts)
    print(f"{len(verdicts) - survivors} of {len(verdicts)} caught, {time.perf_counter() - started:.0f} s")
    return 1 if survivors else 0


def _judge(mutant: Mutant, folder: Path) -> Verdict:
    started = time.perf_counter()
    source = _copy(folder / re.sub(r"\W+", "-", mutant.name))
    plant(mutant, source, write=True)
    caught = _simulate(source, mutant.store) or _suites(source)
    shutil.rmtree(source)
    return Verdict(mutant, caught, time.perf_counter() - started)


def _everything():  # type: ignore[no-untyped-def]
    yield from (lambda source, store=store: _simulate(source, store) for store in SEEDS)
    yield _suites


def _copy(target: Path) -> Path:
    shutil.copytree(ROOT / "src", target, ignore=shutil.ignore_patterns("__pycache__"))
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


def _suites(source: Path) -> str | None:
    """Return which test of the suites fails, if any."""
    if not SUITES:
        return None
    options = ["-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    code, output = _python(source, "pytest", *options, *SUITES)
    if code == 0:
        return None
    found = re.search(r"^FAILED (\S+)", output, re.MULTILINE)
    if found is None:
        raise CannotPlant(output)
    return f"suites: {found[1].split('::')[-1]}"


def _python(source: Path, module: str, *arguments: str) -> tuple[int, str]:
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
        timeout=TIMEOUT,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
