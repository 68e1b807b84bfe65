"""Run orders through a fleet of engines that are killed all the time, and look whether all came out right.

    python examples/workflow_engine [url] --engines 8 --workflows 40 --kill-every 2 --picture timeline.svg

Without a url it makes an SQLite file. With one of a server (postgresql://… or mysql://…) it makes its tables,
``engine_…``, in that database, beside those of the locks.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

import orders
import picture
from database import Database, make_tables
from engine import arguments
from fleet import Fleet

from holdfast import Holdfast


def until_done(db: Database, fleet: Fleet, wanted: int, timeout: float) -> None:
    """Let it happen, and say how far it is, until the last step of every workflow is recorded."""
    began = looked = time.monotonic()
    terminal = sys.stdout.isatty()
    done = 0
    while done < wanted and looked < began + timeout:
        fleet.trouble()
        time.sleep(0.02)
        now = time.monotonic()
        if now < looked + (0.2 if terminal else 1.0):
            continue
        looked = now
        with db.transaction():
            ((done,),) = db.run(
                "SELECT count(DISTINCT workflow) FROM engine_steps WHERE step LIKE ?", "%:notify"
            )
        status = (
            f"{now - began:6.1f} s   {done}/{wanted} workflows   {fleet.kills} killed, {fleet.pauses} paused"
        )
        print(status, end="\r" if terminal else "\n", flush=True)
    if terminal:
        print()


def run(url: str, options: argparse.Namespace) -> list[str]:
    """Do it all; return what went wrong."""
    db = Database(url)
    make_tables(db, orders.CUSTOMERS, options.printers)
    ordered = orders.make(options.workflows, options.printers)
    with Holdfast(url) as locks:
        fleet = Fleet(db, url, options)
        try:
            fleet.until_joined(options.timeout)
            began = time.monotonic()
            locks.offer(ordered)
            until_done(db, fleet, len(ordered), options.timeout)
            took = time.monotonic() - began
            fleet.end()
        finally:
            fleet.close()
        works = list(locks.works(orders.prefix(ordered)))
    wrong = [f"{work.key} is {work.state}: {work.text}" for work in works if work.state != "completed"]
    wrong += orders.mistakes(db, ordered)
    wrong += [f"an engine ended by itself, with {code}" for code in fleet.ended]
    with db.transaction():
        ((effects,),) = db.run("SELECT count(*) FROM engine_steps")
        ((refused,),) = db.run("SELECT count(*) FROM engine_events WHERE what = 'refused'")
    print(
        f"{'WRONG' if wrong else 'every effect exactly once'}: {len(works)} workflows, {effects} effects, "
        f"{took:.1f} s; {fleet.kills} engines killed, {fleet.pauses} paused; "
        f"{sum(work.tries - 1 for work in works)} times a workflow was taken over, "
        f"{refused} times a late engine was refused"
    )
    if options.picture:
        options.picture.write_text(picture.draw(db), "utf-8")
    db.close()
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python examples/workflow_engine",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[arguments()],
    )
    parser.add_argument("url", nargs="?", help="the database: sqlite:///…, postgresql://… or mysql://…")
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--workflows", type=int, default=40)
    parser.add_argument("--printers", type=int, default=8, help="that the workflows share")
    parser.add_argument("--kill-every", type=float, default=2.0, help="seconds; 0: nobody is killed")
    parser.add_argument("--pause-every", type=float, default=0.0, help="seconds; 0: nobody is paused")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds after which it counts as stuck")
    parser.add_argument("--picture", type=Path, help="where to draw who ran what when, as SVG")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no engine is left behind
    with tempfile.TemporaryDirectory() as folder:
        wrong = run(options.url or f"sqlite:///{folder}/engine.db", options)
    for mistake in wrong[:20]:
        print(f"  {mistake}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
