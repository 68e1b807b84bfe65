"""Run many seeds: ``python -m proof.simulation --seeds 1000 --store sqlite``."""

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

from proof.simulation.cluster import simulate_cluster
from proof.simulation.observed import StoreName
from proof.simulation.runner import Report, SimulationFailed, simulate

STORES: tuple[StoreName, ...] = ("memory", "sqlite")


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds that the command line asks for; 1 if one of them breaks an invariant."""
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first")
    parser.add_argument("--store", choices=(*STORES, "both"), default="both")
    parser.add_argument("--fleet", choices=("locks", "engines"), default="locks", help="who uses the store")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--keys", type=int, default=3)
    parser.add_argument("--duration", type=float, default=120.0, help="virtual seconds of work and faults")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    chosen = parser.parse_args(arguments)
    stores = STORES if chosen.store == "both" else (chosen.store,)
    try:
        for store in stores:
            _run_all(store, chosen)
    except SimulationFailed as failure:
        print(failure)
        return 1
    return 0


def _run_all(store: StoreName, chosen: argparse.Namespace) -> None:
    seeds = range(chosen.start, chosen.start + chosen.seeds)
    started = time.perf_counter()
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="holdfast-simulation-") as folder:
        if chosen.fleet == "engines":
            run = partial(_run_engines, store, folder)
        else:
            run = partial(_run, store, chosen.clients, chosen.keys, chosen.duration, folder)
        for report in _reports(run, seeds, min(chosen.jobs, len(seeds))):
            total.update(report.counts)
            if len(seeds) == 1:
                print(f"trace {report.trace_hash}, {report.profile}")
    took = time.perf_counter() - started
    print(f"{len(seeds)} seeds on {store}: every invariant held ({len(seeds) / took:.1f} seeds/s)")
    for name, count in sorted(total.items()):
        print(f"  {name:<24} {count:>10}  {count / len(seeds):10.2f} a run")


def _run(store: StoreName, clients: int, keys: int, duration: float, folder: str, seed: int) -> Report:
    return simulate(seed, store=store, clients=clients, keys=keys, duration=duration, folder=_folder(folder))


def _run_engines(store: StoreName, folder: str, seed: int) -> Report:
    return simulate_cluster(seed, store=store, folder=_folder(folder))


def _folder(parent: str) -> Path:
    """Return the folder of this process."""
    own = Path(parent) / str(os.getpid())
    own.mkdir(exist_ok=True)
    return own


def _reports(run: partial[Report], seeds: range, jobs: int) -> Iterator[Report]:
    if jobs <= 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, seeds, chunksize=4)


if __name__ == "__main__":
    sys.exit(main())
