"""``holdfast instances``: who has joined, how it is, and how much of its capacity is taken."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from holdfast.cli.connection import Connection
from holdfast.cli.options import add, add_store, patience
from holdfast.cli.output import (
    DIM,
    GREEN,
    RED,
    YELLOW,
    Layout,
    can_show,
    clean,
    count,
    duration_text,
    print_json,
    print_table,
    say,
)
from holdfast.cli.target import looked_at, or_empty, shown
from holdfast.core.cluster import InstanceView, ListInstances

DESCRIPTION = """\
List the instances of a cluster: the processes that have joined to be given
work. Of each: its state, how much of its capacity is taken, how long ago it was
last heard of, and since when it is there.

An instance is alive as long as its heartbeats come, draining when it takes no
more work, and dead when it was not heard of for too long: then others take over
what it had. Those that have left or died are shown with --all, for an hour or
so; the dead that still have work always are.
"""

EPILOG = """\
examples:
  holdfast instances                   who is there
  holdfast work --instance worker-7    what it is doing
  holdfast watch 'instance:*'          who comes and goes, as it happens
"""

LAYOUT = Layout(
    header=("NAME", "STATE", "WORK", "HOST:PID", "BEAT", "THERE FOR", "VERSION", "ID"),
    right=frozenset({"BEAT", "THERE FOR"}),
    shrink={"NAME": 8, "HOST:PID": 8, "VERSION": 7},
    drop=("VERSION", "HOST:PID", "ID", "THERE FOR", "BEAT"),
)
STYLES = {"alive": GREEN, "draining": YELLOW, "left": DIM, "dead": RED}
GONE = ("left", "dead")
BAR = 8  # columns


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    add(parser, "--all", "also those that have left or died")
    add_store(parser, json="write one JSON object a line")


def call(args: argparse.Namespace) -> None:
    """Print the instances."""
    url = looked_at(args)
    with Connection(or_empty(url), patience(args)) as connection:
        found = list(instances(connection))
    wanted = [each for each in found if args.all or each.state not in GONE or _has_left_work(each)]
    if args.json:
        print_json(wanted)
        return
    if wanted:
        now = time.time()
        wanted.sort(key=lambda each: (each.state in GONE, each.name, each.joined_at))
        rows = [_row(each, now) for each in wanted]
        print_table(LAYOUT, rows, [STYLES[each.state] for each in wanted], painted=1)
    elif not found:
        say(f"nobody has joined in {shown(url)}")
    if hidden := len(found) - len(wanted):
        say(f"{count(hidden, 'instance')} {'has' if hidden == 1 else 'have'} left or died: see --all")


def instances(connection: Connection) -> Iterator[InstanceView]:
    """Return all instances that are known, in the order of their ids."""
    return connection.pages(ListInstances(), "instances")


def _has_left_work(instance: InstanceView) -> bool:
    return instance.state == "dead" and instance.assigned > 0


def _row(each: InstanceView, now: float) -> tuple[str, ...]:
    return (
        clean(each.name),
        each.state,
        bar(each.assigned, each.capacity),
        f"{clean(each.host)}:{each.pid}" if each.pid else clean(each.host),
        f"{duration_text(max(now - each.beat_at, 0))} ago",
        duration_text(max(now - each.joined_at, 0)) if each.state not in GONE else "-",
        clean(each.version) or "-",
        clean(each.id),
    )


def bar(taken: int, capacity: int) -> str:
    """Return how much of a capacity is taken, as a small picture and in numbers."""
    full, empty = "█░" if can_show("█░") else "#."
    filled = min(-(-taken * BAR // capacity), BAR) if capacity else 0
    return f"{full * filled}{empty * (BAR - filled)} {taken}/{capacity}"
