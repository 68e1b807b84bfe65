"""Prove it: ``make proof``, or ``python -m proof --stores postgres --seed 7 --seconds 60``."""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import time
import traceback
from pathlib import Path
from typing import cast, get_args

from proof.goals import FULL, QUICK
from proof.report import summary, write_index
from proof.run import Result, replay_command, run
from proof.stage.stage import StoreName

STORES: tuple[StoreName, ...] = get_args(StoreName)
FOLDER = Path("build/proof")


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; 1 if anything was violated, undecided or not shown."""
    parser = argparse.ArgumentParser(prog="proof", description=__doc__)
    parser.add_argument("--stores", default=",".join(STORES), help="which, with commas between them")
    parser.add_argument("--seed", type=int, help="of traffic and faults; a new one each time, unless given")
    parser.add_argument("--seconds", type=float, help=f"of each run: {FULL.seconds:g}, or {QUICK.seconds:g}")
    parser.add_argument("--quick", action="store_true", help="the version that is part of the tests")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for histories and pages")
    chosen = parser.parse_args(arguments)
    stores = chosen.stores.split(",")
    if unknown := set(stores) - set(STORES):
        parser.error(f"there is no store {', '.join(sorted(unknown))}: {', '.join(STORES)}")
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(1_000_000)
    seconds = chosen.seconds or (QUICK if chosen.quick else FULL).seconds
    options = "" if chosen.folder == FOLDER else f"--folder {shlex.quote(str(chosen.folder))}"
    results: list[Result] = []
    for store in stores:
        say(f"{store}: {seconds:g} s of traffic and faults, seed {seed}")
        began = time.monotonic()
        folder = chosen.folder / f"{store}-{seed}"
        try:
            result = run(
                cast("StoreName", store), seed, seconds, folder, quick=chosen.quick, say=say, options=options
            )
        except Exception:  # it could not even begin, or be judged: the other stores can
            traceback.print_exc()
            again = replay_command(store, seed, seconds, quick=chosen.quick, options=options)
            say(f"{store}: FAILED, seed {seed}. Again: {again}")
            continue
        print(summary(result.history, result.verdicts, missed=result.missed), flush=True)
        results.append(result)
        tell_verdict(result, time.monotonic() - began)
    index = chosen.folder / "index.html"
    pages = [(each.history, each.verdicts, each.page) for each in results]
    write_index(pages, index, missed=[each.missed for each in results])
    print(f"pages: {index}")
    held = sum(result.held for result in results)
    print(f"{held} passed, {len(stores) - held} failed")
    return 0 if held == len(stores) else 1


def tell_verdict(result: Result, took: float) -> None:
    """Say what came of a run, and how to run it again if it was not good."""
    store, seed = result.history.run.store, result.history.run.seed
    if result.held:
        say(f"{store}: held, {took:.0f} s, {result.page}")
        return
    say(f"{store}: FAILED, seed {seed}. Again: {result.history.run.replay}")
    for goal in result.missed:
        say(f"  {goal}")
    for verdict in result.verdicts:
        if verdict.undecided:
            say(f"  {verdict.checker}: {verdict.undecided} undecided")
        for violation in verdict.violations[:10]:
            say(f"  {verdict.checker}: «{violation.rule}» {violation.key}: {violation.text}")


def say(text: str) -> None:
    """Print a line at once: runs are long, and somebody watches."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
