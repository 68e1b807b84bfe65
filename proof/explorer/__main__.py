"""Explore: ``python -m proof.explorer --clients 3 --keys 2 --turns 1 --faults 1``."""

from __future__ import annotations

import argparse
import sys
import time
from typing import get_args

from proof.explorer.bounds import FAULTS, LONGEST_WAIT, Bounds, Fault
from proof.explorer.search import CounterExample, Report, explore

TELL_EVERY = 10.0  # seconds


def main(arguments: list[str] | None = None) -> int:
    """Explore what the command line asks for; 1 if an invariant does not hold, with the way there."""
    parser = argparse.ArgumentParser(prog="explore", description=__doc__)
    parser.add_argument("--clients", type=int, default=2, choices=range(1, 10))
    parser.add_argument("--keys", type=int, default=1, choices=range(1, 10))
    parser.add_argument("--turns", type=int, default=1, help="how often each client asks for a lock")
    parser.add_argument("--faults", type=int, default=1, help="how many there are in one run, of any kinds")
    parser.add_argument(
        "--kind", action="append", choices=get_args(Fault), help="of faults; may be repeated (default: most)"
    )
    parser.add_argument("--tries", action="store_true", help="clients may also ask without waiting")
    parser.add_argument("--nested", action="store_true", help="who holds one key may want another")
    parser.add_argument("--hands", action="store_true", help="who holds a key may pass it on to be released")
    parser.add_argument("--depth", type=int, help="the most moves in one run (default: no limit)")
    parser.add_argument("--limit", type=int, help="the most states to look at (default: all)")
    parser.add_argument("--quiet", action="store_true", help="say nothing before the end")
    chosen = parser.parse_args(arguments)
    bounds = Bounds(
        clients=chosen.clients,
        keys=chosen.keys,
        turns=chosen.turns,
        faults=chosen.faults,
        kinds=tuple(chosen.kind or FAULTS),
        waits=(LONGEST_WAIT, 0.0) if chosen.tries else (LONGEST_WAIT,),
        nested=chosen.nested,
        hands=chosen.hands,
        depth=chosen.depth,
        limit=chosen.limit,
    )
    try:
        report = explore(bounds, None if chosen.quiet else _Progress())
    except CounterExample as example:
        print(example)
        return 1
    print(told(report))
    return 0


class _Progress:
    """Tells now and then how far it is, where nobody reads it by mistake."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def __call__(self, report: Report, waiting: int) -> None:
        if time.monotonic() >= self._told + TELL_EVERY:
            self._told = time.monotonic()
            print(
                f"{report.states:,} states, {waiting:,} of them to go on from,"
                f" every run of {report.depth} moves, {report.seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )


def told(report: Report) -> str:
    """Say what was explored."""
    bounds = report.bounds
    if report.complete:
        extent = f"everything there is within these bounds; the farthest state is {report.depth} moves away"
    else:
        extent = f"not everything within these bounds, but every run of up to {report.depth} moves"
    within = (
        f"{bounds.clients} clients, {bounds.keys} keys, {bounds.turns} turns each, {bounds.faults} faults"
    )
    seen = f"{report.states:,} states by {report.transitions:,} moves, {report.seconds:.1f} s"
    lines = [f"{within}: every invariant held", f"  {seen}", f"  {extent}"]
    lines += ["  among the requests that were different:"]
    lines += [f"    {name:<22} {count:>10,}" for name, count in sorted(report.counts.items())]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
