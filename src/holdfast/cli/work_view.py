"""How work is found and written for people: a list with how much there is of each type, and one by one."""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Iterator, Sequence
from itertools import islice

from holdfast import errors
from holdfast.cli.connection import Connection
from holdfast.cli.instances import instances
from holdfast.cli.output import (
    BOLD,
    DIM,
    GREEN,
    RED,
    Layout,
    clean,
    cut,
    duration_text,
    moment_text,
    paint,
    print_line,
    print_table,
    say,
)
from holdfast.cli.show import print_history
from holdfast.cli.target import shown
from holdfast.core.cluster import CountWork, ListWork, WorkCount, WorkState, WorkView
from holdfast.core.events import Event
from holdfast.core.family import whereabouts
from holdfast.core.requests import Inspect, LockView

OPEN: tuple[WorkState, ...] = ("offered", "assigned", "failed")
STYLES = {"offered": "", "assigned": GREEN, "completed": DIM, "failed": RED}
LAYOUT = Layout(
    header=("KEY", "STATE", "WHEN", "TRIES", "INSTANCE", "RESULT OR ERROR"),
    right=frozenset({"TRIES"}),
    shrink={"KEY": 16, "INSTANCE": 8, "RESULT OR ERROR": 15},
    drop=("RESULT OR ERROR", "TRIES", "INSTANCE", "WHEN"),
)
LONGEST = 60  # characters of a result in a list that is not cut to a terminal


def find(connection: Connection, prefix: str, state: str, instance: str | None) -> Iterator[WorkView]:
    """Return work in the order of its keys. *state* may be open or all as well, *instance* a name."""
    states = {"open": OPEN, "all": (None,)}.get(state, (state,))
    ids = [None] if instance is None else _ids(connection, instance)
    wanted = [ListWork(prefix, state, id) for state in states for id in ids]  # type: ignore[arg-type]
    lists = [connection.pages(each, "works") for each in wanted]
    return heapq.merge(*lists, key=lambda work: work.key)


def _ids(connection: Connection, name: str) -> list[str]:
    """Return which instances are meant. One that is forgotten may still be named by its work."""
    names = _names(connection)
    return [name] if name in names else [id for id, called in names.items() if called == name] or [name]


def _names(connection: Connection) -> dict[str, str]:
    try:
        return {each.id: each.name for each in instances(connection)}
    except errors.AccessDenied:  # then they go by their ids
        return {}


def print_list(
    connection: Connection, works: Iterator[WorkView], url: str, limit: int, *, such: str, prefix: str
) -> None:
    """Print how much there is of each type, then what was found."""
    type = prefix.partition(":")[0]
    counts = [each for each in connection.ask(CountWork()) if f"{each.type}:".startswith(type)]
    for each in counts:
        print(count_text(each))
    found = list(islice(works, limit))
    if not found:
        # Say where we looked: most often it is the wrong store. To stderr, for stdout may be counted.
        which = {"open": "open ", "all": ""}.get(such, f"{such} ")
        say(f"no {which}work{f' that begins with {prefix!r}' if prefix else ''} is in {shown(url)}")
        return
    names = _names(connection) if any(work.instance for work in found) else {}
    now = time.time()
    if counts:
        print()
    rows = [_row(work, names, now) for work in found]
    print_table(LAYOUT, rows, [STYLES[work.state] for work in found], painted=1)
    if next(works, None) is not None:
        say(f"there is more than these {limit}: see --limit, or narrow it down by prefix, state or instance")


def count_text(counted: WorkCount) -> str:
    """Return how much work there is of a type, in a line."""
    parts = []
    if counted.offered:
        oldest = f" (the oldest is due for {duration_text(counted.waiting)})" if counted.waiting >= 1 else ""
        parts.append(f"{counted.offered} offered{oldest}")
    if counted.assigned:
        parts.append(f"{counted.assigned} assigned")
    if counted.failed:
        parts.append(paint(f"{counted.failed} failed", RED))
    name = paint(clean(counted.type) or "(no type)", BOLD)
    return f"{name}: {', '.join(parts)}"


def _row(work: WorkView, names: dict[str, str], now: float) -> tuple[str, ...]:
    return (
        clean(work.key),
        work.state,
        when_text(work, now),
        f"{work.tries}/{work.max_tries}" if work.max_tries else str(work.tries),
        clean(names.get(work.instance, work.instance)) or "-",
        cut(clean(work.text), LONGEST) or "-",
    )


def when_text(work: WorkView, now: float) -> str:
    """Return since when work is as it is, or how long it has to wait yet; by the clock of this machine."""
    if work.state == "assigned":
        return f"for {duration_text(max(now - (work.assigned_at or now), 0))}"
    if work.state != "offered":
        return f"{duration_text(max(now - work.due_at, 0))} ago"
    if work.due_at > now:
        return f"due in {duration_text(work.due_at - now)}"
    return f"due for {duration_text(now - work.due_at)}"


def print_one(connection: Connection, work: WorkView, events: Sequence[Event]) -> None:
    """Print all about one piece of work."""
    now = time.time()
    print(paint(clean(work.key), BOLD))
    print_line("state", f"{paint(work.state, STYLES[work.state])}, {when_text(work, now)}")
    most = f" of {work.max_tries}" if work.max_tries else ", of any number"
    print_line("tries", f"{work.tries}{most}")
    print_line("offered", moment_text(work.offered_at))
    if work.assigned_at is not None:
        print_line("assigned", f"{moment_text(work.assigned_at)}, token {work.token}")
    if work.instance:
        name = _names(connection).get(work.instance, "")
        print_line("instance", f"{clean(name)} ({clean(work.instance)})" if name else clean(work.instance))
    if work.state == "assigned":
        print_line("lease", _lease(connection.ask(Inspect(work.key)), work))
    else:
        print_line("due" if work.state == "offered" else work.state, moment_text(work.due_at))
    print_line("data", _indented(work.data))
    if work.text and work.state == "completed":
        print_line("result", _indented(work.text))
    elif work.text:
        print_line("error", clean(work.text))
    print_history(events)


def _lease(view: LockView | None, work: WorkView) -> str:
    if view is None or view.holder is None or view.holder.token != work.token or view.state != "held":
        return "is over; somebody takes the work over when instances look for work of this type"
    where = whereabouts(clean(view.holder.host), view.holder.pid)
    return f"{where}; ends in {duration_text(view.expires_in)} unless it is renewed"


def _indented(text: str) -> str:
    """Return JSON to be read; as it is if somebody wrote something else there."""
    try:
        written = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):  # no JSON, or too deep to be made pretty
        return clean(text)
    return f"\n{'':12}".join(map(clean, written.splitlines()))
