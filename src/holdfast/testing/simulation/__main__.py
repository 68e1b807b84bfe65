"""Run many seeds: ``python -m holdfast.testing.simulation --seeds 1000 --store sqlite``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from holdfast.testing.simulation.observed import StoreName
from holdfast.testing.simulation.runner import Report, SimulationFailed, simulate


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds that the command line asks for; 1 if one of them breaks an invariant."""
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first")
    parser.add_argument("--store", choices=("memory", "sqlite"), default="sqlite")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--keys", type=int, default=3)
    parser.add_argument("--duration", type=float, default=120.0, help="virtual seconds before the end")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.start, chosen.start + chosen.seeds)
    started = time.perf_counter()
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="holdfast-simulation-") as folder:
        run = partial(_run, chosen.store, chosen.clients, chosen.keys, chosen.duration, folder)
        try:
            for report in _all(run, seeds, chosen.jobs):
                total.update(report.counts)
                if chosen.seeds == 1:
                    print(f"trace {report.trace_hash}, {report.profile}")
        except SimulationFailed as failure:
            print(failure)
            return 1
    took = time.perf_counter() - started
    print(
        f"{len(seeds)} seeds on {chosen.store} without a violation, {took:.1f} s ({len(seeds) / took:.1f} seeds/s)"
    )
    for name, count in sorted(total.items()):
        print(f"  {name:<24} {count:>10}  {count / len(seeds):10.2f} a run")
    return 0


def _run(store: StoreName, clients: int, keys: int, duration: float, folder: str, seed: int) -> Report:
    own = Path(folder) / str(os.getpid())
    own.mkdir(exist_ok=True)
    return simulate(seed, store=store, clients=clients, keys=keys, duration=duration, folder=own)


def _all(run: partial[Report], seeds: range, jobs: int) -> Iterator[Report]:
    if jobs == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, seeds, chunksize=8)


if __name__ == "__main__":
    sys.exit(main())
