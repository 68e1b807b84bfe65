"""Plant each mutant in a copy of the source, and see that a check fails: ``python -m proof.mutants``.

Each mutant names the test that has to fail, or the seed of the simulation that has to find it. If a seed does
not find it any more, the others are tried, and then the unit tests and the conformance suites on memory and
SQLite. Fails if a mutant survives or cannot be planted any more, and if the checks fail without any mutant,
which is not looked at again with ``--tested``. Words on the command line choose mutants by their names,
``--part=2/6`` the second of six parts.

Which other layers of the tests would have noticed is another question: see `layers`, or say ``--layers``.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proof.mutants.checks import SEEDS, SUITES, Lender, run_tests, share_fresh_data, simulate
from proof.mutants.cluster import CLUSTER_MUTANTS, CLUSTER_MUTANTS_ON_SERVERS
from proof.mutants.copies import CannotPlant, copy, plant, planted
from proof.mutants.databases import DATABASE_MUTANTS
from proof.mutants.entering import ENTERING_MUTANTS, ENTERING_MUTANTS_ON_SERVERS
from proof.mutants.family import FAMILY_MUTANTS
from proof.mutants.found import FOUND_MUTANTS, FOUND_MUTANTS_ON_SERVERS
from proof.mutants.groups import GROUP_MUTANTS, GROUP_MUTANTS_ON_SERVERS
from proof.mutants.keeper import KEEPER_MUTANTS
from proof.mutants.mutant import Mutant
from proof.mutants.mysql import MYSQL_MUTANTS_ON_SERVERS
from proof.mutants.ownership import OWNERSHIP_MUTANTS
from proof.mutants.permits import PERMITS_MUTANTS
from proof.mutants.protocol import MUTANTS
from proof.mutants.rules import RULES_MUTANTS, RULES_MUTANTS_ON_SERVERS
from proof.mutants.server import SERVER_MUTANTS, SERVER_MUTANTS_ON_SERVERS
from proof.mutants.shell import SHELL_MUTANTS, SHELL_MUTANTS_ON_SERVERS
from proof.mutants.sqlite import SQLITE_MUTANTS
from proof.mutants.stays import STAY_MUTANTS
from tests.conftest import CI
from tests.servers.binaries import PACKAGES, find

LOCAL_MUTANTS = (
    MUTANTS
    + KEEPER_MUTANTS
    + ENTERING_MUTANTS
    + RULES_MUTANTS
    + OWNERSHIP_MUTANTS
    + FAMILY_MUTANTS
    + STAY_MUTANTS
    + CLUSTER_MUTANTS
    + SERVER_MUTANTS
    + FOUND_MUTANTS
    + SHELL_MUTANTS
    + SQLITE_MUTANTS
    + GROUP_MUTANTS
)
REMOTE_MUTANTS = (
    RULES_MUTANTS_ON_SERVERS
    + ENTERING_MUTANTS_ON_SERVERS
    + DATABASE_MUTANTS
    + PERMITS_MUTANTS
    + CLUSTER_MUTANTS_ON_SERVERS
    + SERVER_MUTANTS_ON_SERVERS
    + FOUND_MUTANTS_ON_SERVERS
    + SHELL_MUTANTS_ON_SERVERS
    + GROUP_MUTANTS_ON_SERVERS
    + MYSQL_MUTANTS_ON_SERVERS
)
SERVERS = ("postgres", "mariadbd")
TESTED, LAYERS, PART = "--tested", "--layers", "--part="
PARTS = 4  # of the named tests, without any mutant
WORKERS = (os.cpu_count() or 1) + 1  # some of the tests wait for what does not come any more


@dataclass
class Verdict:
    mutant: Mutant
    caught_by: str | None
    took: float


def main(words: list[str]) -> int:
    if LAYERS in words:
        from proof.mutants import layers  # which needs to know all mutants

        return layers.main([word for word in words if word != LAYERS])
    tested = TESTED in words  # a moment ago, without any mutant
    part, parts = next(
        (map(int, word[len(PART) :].split("/")) for word in words if word.startswith(PART)), (1, 1)
    )
    words = [word for word in words if word != TESTED and not word.startswith(PART)]
    known = LOCAL_MUTANTS + (REMOTE_MUTANTS if servers_are_there() else ())
    chosen = [mutant for mutant in known if not words or any(word in mutant.name for word in words)]
    chosen = chosen[part - 1 :: parts]
    if not chosen:
        print("there is no such mutant")
        return 1
    started = time.perf_counter()
    share_fresh_data()
    lender = Lender()
    with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as folder:
        healthy = copy(Path(folder))
        for mutant in chosen:
            plant(mutant, healthy, write=False)
        try:
            with ThreadPoolExecutor(WORKERS) as pool:
                # No mutant first: what fails anyway catches nothing.
                checks = [] if tested else _everything(chosen, lender)
                flaws = [flaw for flaw in pool.map(lambda check: check(healthy), checks) if flaw]
                if flaws:
                    print(f"without any mutant, this fails: {flaws}")
                    return 1
                # Those that take longest are the last ones, and begin first.
                verdicts = list(pool.map(lambda mutant: _judge(mutant, healthy, lender), reversed(chosen)))
        finally:
            lender.close()
    width = max(len(mutant.name) for mutant in chosen)
    for verdict in reversed(verdicts):
        caught = verdict.caught_by or "SURVIVED"
        print(
            f"{verdict.mutant.name:<{width}}  {verdict.mutant.trap:<20}  {caught:<44} {verdict.took:5.1f} s"
        )
    if known == LOCAL_MUTANTS:
        print(f"{len(REMOTE_MUTANTS)} mutants of the database servers were NOT TESTED")
    survivors = sum(verdict.caught_by is None for verdict in verdicts)
    print(f"{len(verdicts) - survivors} of {len(verdicts)} caught, {time.perf_counter() - started:.0f} s")
    return 1 if survivors else 0


def servers_are_there() -> bool:
    """Tell whether there are servers to be tested on, and loudly if not; under CI they have to be."""
    missing = [f"{program} (package {PACKAGES[program]})" for program in SERVERS if find(program) is None]
    if missing:
        print(f"!!! MISSING: {', '.join(missing)}. Mutants of the database servers are not tested.")
    return CI or not missing


def _judge(mutant: Mutant, healthy: Path, lender: Lender) -> Verdict:
    started = time.perf_counter()
    with planted(mutant, healthy) as source:
        try:
            if mutant.test:
                caught = run_tests(source, [mutant.test], lender, about=mutant.name)
            else:
                caught = (
                    simulate(source, mutant.store, mutant.seed)
                    or _another(simulate(source, mutant.store))
                    or _another(run_tests(source, SUITES, lender))
                )
        except subprocess.TimeoutExpired:
            print(f"{mutant.name}: hangs, and nothing says why")
            caught = None
        except CannotPlant as error:
            print(f"{mutant.name}: does not even run\n{error}")
            caught = None
    return Verdict(mutant, caught, time.perf_counter() - started)


def _another(caught: str | None) -> str | None:
    return caught and f"{caught}, NOT BY ITS SEED: name this one"


def _everything(chosen: list[Mutant], lender: Lender) -> list[Callable[[Path], str | None]]:
    """Return the checks that the chosen mutants are put to."""
    checks: list[Callable[[Path], str | None]] = []
    if any(not mutant.test for mutant in chosen):
        checks += [partial(simulate, store=store) for store in SEEDS]
        checks.append(partial(run_tests, tests=SUITES, lender=lender, explain=True))
    named = sorted({mutant.test for mutant in chosen if mutant.test})
    parts = (named[part::PARTS] for part in range(PARTS))
    return checks + [partial(run_tests, tests=part, lender=lender, explain=True) for part in parts if part]
