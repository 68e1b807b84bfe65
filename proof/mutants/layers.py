"""Which layers of the tests would have noticed: ``python -m proof.mutants.layers`` writes a page about it.

`run` asks of each mutant whether its check catches it. This asks some of them (see `traps`) of every layer
that can see them at all, and takes minutes. What is known is kept in ``build/``: whoever interrupts it can go
on, and a new layer costs only its own column. ``--again`` forgets all that. Words choose mutants by name.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from proof.mutants.checks import NOT_EVEN_RUNS, OPTIONS, SEEDS, Lender, python, share_fresh_data
from proof.mutants.copies import ROOT, copy, planted
from proof.mutants.mutant import Mutant
from proof.mutants.page import PAGE, Result, write_page
from proof.mutants.run import LOCAL_MUTANTS, REMOTE_MUTANTS, WORKERS
from proof.mutants.traps import TRAPS

StoreName = Literal["memory", "sqlite", "postgres", "mysql"]
Command = tuple[str, ...]  # a module with its arguments

KNOWN = ROOT / "build" / "mutants-layers.json"
AGAIN = "--again"
NOTHING = Mutant("nothing", "", "__init__.py", ())
TIMEOUT = 1200.0  # only for what hangs


def tests(*which: str) -> Command:
    return ("pytest", *OPTIONS, *which)


def simulated(store: str, *which: str) -> Command:
    return ("proof.simulation", "--store", store, "--jobs", "1", *which)


@dataclass(frozen=True)
class Layer:
    name: str
    command: Callable[[Mutant, StoreName], Command | None]  # None: it cannot see this one


@dataclass(frozen=True)
class Question:
    mutant: Mutant
    layer: str
    command: Command

    @property
    def name(self) -> str:
        """A name of its own, so that it is asked again when the mutant or the layer has changed."""
        digest = hashlib.sha256(repr((self.mutant.changes, self.command)).encode()).hexdigest()[:12]
        return f"{self.mutant.name} {digest}"


def store_of(mutant: Mutant) -> StoreName:
    """Tell the store on which a mutant shows: the one it is in, else the fastest that has it."""
    place = f"{mutant.file} {mutant.name}"
    if "stores/mysql" in place or "mysql:" in place or "mariadb" in mutant.test:
        return "mysql"
    if "stores/postgres" in place or "postgres" in f"{mutant.name} {mutant.test}" or "servers:" in place:
        return "postgres"
    return "sqlite" if "stores/sql" in place or "sqlite" in mutant.test else "memory"


def _own(mutant: Mutant, store: StoreName) -> Command | None:
    if mutant.test:
        return tests(mutant.test)
    return simulated(mutant.store, "--seeds", "1", "--start", str(mutant.seed))


def _unit(mutant: Mutant, store: StoreName) -> Command | None:
    return None if mutant.file.startswith("stores/") else tests("tests/unit")


def _simulation(mutant: Mutant, store: StoreName) -> Command | None:
    return simulated(store, "--seeds", str(SEEDS[store])) if store in SEEDS else None


def _conformance(mutant: Mutant, store: StoreName) -> Command | None:
    if not mutant.file.startswith("stores/"):
        return None
    # Through an event loop the same questions are asked of the same store.
    return tests(f"tests/conformance/test_{store}.py", "-k", "not async")


def _comparison(mutant: Mutant, store: StoreName) -> Command | None:
    """Compare with the reference. Of the reference itself SQLite would be another opinion."""
    if not mutant.file.startswith("stores/"):
        return None
    return tests(
        {
            "memory": "tests/conformance/test_comparison.py",
            "sqlite": "tests/conformance/test_comparison.py",
            "postgres": "tests/conformance/test_comparison_servers.py",
            "mysql": "tests/conformance/test_mysql_comparison.py",
        }[store],
        "-k",
        "not engine",
    )


def _exploration(mutant: Mutant, store: StoreName) -> Command | None:
    if store != "memory":
        return None
    return ("proof.explorer", "--quiet", "--turns", "2", "--limit", "30000")


# A layer is a line. What it says of a mutant is its exit code: 0 if it has noticed nothing.
LAYERS = (
    Layer("its own check", _own),
    Layer("unit tests", _unit),
    Layer("exploration", _exploration),
    Layer("simulation", _simulation),
    Layer("conformance suite", _conformance),
    Layer("comparison with the reference", _comparison),
)


def shown() -> list[Mutant]:
    """Return the mutants of the table, in the order of the traps."""
    known = {mutant.name: mutant for mutant in LOCAL_MUTANTS + REMOTE_MUTANTS}
    return [known[name] for trap in TRAPS.values() for name in trap.shown]


def judge(mutant: Mutant, command: Command, healthy: Path, lender: Lender) -> Result:
    """Put a mutant to a layer."""
    servers = lender.lend(" ".join((mutant.name, *command)))
    began = time.perf_counter()
    with planted(mutant, healthy) as source:
        try:
            code, output = python(source, *command, environment=servers, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            lender.give_up()
            return Result("hangs", "", time.perf_counter() - began)
    took = time.perf_counter() - began
    if code == 0:
        return Result("missed", "", took)
    found = re.search(r"^FAILED \S+::(\w+)|breaks «(.+?)»|^«(.+?)» is broken", output, re.MULTILINE)
    if found is None or NOT_EVEN_RUNS.search(output):
        return Result("fails", _last_words(output), took)
    return Result("caught", next(filter(None, found.groups())), took)


def _last_words(output: str) -> str:
    errors = re.findall(r"^E +(\w.*)$", output, re.MULTILINE) or output.strip().splitlines()[-1:]
    return errors[-1][:120] if errors else ""


def questions(words: list[str]) -> list[Question]:
    """Return what there is to ask: nothing planted first, because what fails anyway catches nothing."""
    mutants = [mutant for mutant in shown() if not words or any(word in mutant.name for word in words)]
    asked = [
        Question(mutant, layer.name, command)
        for layer in LAYERS
        for mutant in mutants
        if (command := layer.command(mutant, store_of(mutant))) is not None
    ]
    # Each mutant's own check is put to the healthy code by `run`.
    whole = {question.command: question for question in asked if question.layer != LAYERS[0].name}
    return [Question(NOTHING, question.layer, command) for command, question in whole.items()] + asked


def main(words: list[str]) -> int:
    known = {} if AGAIN in words or not KNOWN.exists() else json.loads(KNOWN.read_text("utf-8"))
    asked = questions([word for word in words if word != AGAIN])
    missing = [question for question in asked if question.name not in known]
    share_fresh_data()
    mutex, lender, began = threading.Lock(), Lender(), time.perf_counter()

    def ask(question: Question) -> None:
        result = judge(question.mutant, question.command, healthy, lender)
        with mutex:
            known[question.name] = result.__dict__
            KNOWN.parent.mkdir(exist_ok=True)
            KNOWN.write_text(json.dumps(known, indent=1, sort_keys=True), "utf-8")
            what = f"{question.mutant.name:<62} {question.layer:<30}"
            print(f"{what} {result.verdict:<7} {result.took:6.1f} s", flush=True)

    with tempfile.TemporaryDirectory(prefix="holdfast-layers-") as folder:
        healthy = copy(Path(folder))
        try:
            with ThreadPoolExecutor(WORKERS) as pool:
                list(pool.map(ask, missing))
        finally:
            lender.close()
    table: dict[str, dict[str, Result]] = {}
    for question in questions([]):
        if found := known.get(question.name):
            result = Result(**found)
            if question.mutant is NOTHING and result.verdict != "missed":
                print(f"without any mutant, this fails: {' '.join(question.command)}: {result.by}")
                return 1
            table.setdefault(question.mutant.name, {})[question.layer] = result
    write_page(table, [layer.name for layer in LAYERS], LOCAL_MUTANTS + REMOTE_MUTANTS)
    print(f"{len(missing)} of {len(asked)} asked, {time.perf_counter() - began:.0f} s: {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
