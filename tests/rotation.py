"""The part of the long checks that this commit's turn is: ``python -m tests.rotation``.

What takes too long for every run of CI is cut into parts: the tests that the usual extent leaves out, the
mutants, the seeds of the simulation, the proof. Each commit takes the next part of each, so that a few
commits have run all of them. The turn is the number of commits, so a commit runs the same part everywhere.
``TURN=3`` chooses another.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

TURN = "TURN"
MATRIX_PARTS = 12
MUTANT_PARTS = 6
SEEDS = 200
PROOF_STORES = ("sqlite", "postgres", "mariadb")


def turn() -> int:
    """Return the number of this commit, counted from the first one."""
    if given := os.environ.get(TURN):
        return int(given)
    counted = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"], capture_output=True, text=True, check=False
    )
    return int(counted.stdout) if counted.returncode == 0 else 0


def steps(turn: int) -> dict[str, list[str]]:
    """Return the commands of that *turn* by what they are."""
    matrix, mutants = turn % MATRIX_PARTS + 1, turn % MUTANT_PARTS + 1
    store = PROOF_STORES[turn % len(PROOF_STORES)]
    seeds = turn * SEEDS
    return {
        f"part {matrix} of {MATRIX_PARTS} of the tests that `make test` leaves out": [
            *("pytest", "-q", "-n", "3", "--extent", f"{matrix}/{MATRIX_PARTS}", "tests")
        ],
        f"part {mutants} of {MUTANT_PARTS} of the mutants": [
            *("proof.mutants", "--tested", f"--part={mutants}/{MUTANT_PARTS}")
        ],
        f"seeds {seeds} to {seeds + SEEDS - 1} of the simulations": [
            *("proof.simulation", "--seeds", str(SEEDS), "--start", str(seeds))
        ],
        f"a short proof on {store}": [
            *("proof", "--quick", "--seed", str(turn), "--stores", store),
            *("--folder", "build/proof"),
        ],
    }


def main() -> int:
    number = turn()
    print(f"turn {number} of the rotation; repeat it with TURN={number} make rotation", flush=True)
    failed = []
    for what, module in steps(number).items():
        print(f"\n--- {what}", flush=True)
        started = time.monotonic()
        code = subprocess.run([sys.executable, "-m", *module], check=False).returncode
        print(
            f"--- {what}: {'passed' if code == 0 else 'FAILED'}, {time.monotonic() - started:.0f} s",
            flush=True,
        )
        if code:
            failed.append(what)
    if failed:
        print(f"\nFAILED in turn {number}: {'; '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
