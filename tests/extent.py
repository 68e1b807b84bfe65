"""How much of the tests is run: ``--extent`` quick, usual, full (the default), or a part such as 2/6.

Most tests are asked of every store, both by threads and by tasks. What a test is about mostly depends on one
of them, not on each pair. So a smaller extent spreads the tests over the pairs, and each pair still has its
share:

- **usual** (`make test`): a test runs once by threads and once by tasks, and of these once on what needs no
  server and once on a database server, or behind a lock server. The suite that defines a store runs whole on
  each.
- **quick** (`make check`): a test runs once, on what needs no server.
- **2/6**: the second of six parts of what *usual* leaves out. CI takes another part with each commit.

A test marked ``full`` is left out of *usual*. Which pair a test gets follows from its name: it is always the
same.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any
from zlib import crc32

import pytest

LOCAL = ("memory", "sqlite")
DATABASES = ("postgres", "mariadb", "mysql")
SERVED = tuple(f"http-{kind}" for kind in (*LOCAL, *DATABASES))
WAYS = ("sync", "async")
NEEDS_A_SERVER = {"postgres_server", "mariadb_server"}

# What these are about is the same whatever the store is: it is asked of those that need no server.
OF_THE_CLIENT = (
    *("test_bad_input", "test_every_limits", "test_guarded", "test_interrupts", "test_lock_order"),
    "test_several",
)
# What these are about is the store's own: it is asked of each, one way.
OF_THE_STORE = ("test_failover", "test_fencing", "test_memory", "test_servers_", "test_sqlite")

# The suite behind a lock server, of which each question is asked over one of the stores, or over two.
BEHIND = re.compile(r"test_http_(memory|sqlite|postgres|mysql)\.py::\w+")

# Folders whose tests take no time. They come last: then no process is left with minutes of what waits, while
# the others have nothing to do any more.
SHORT = ("conformance", "mutants", "server", "unit")

EXTENTS = ("quick", "usual", "full")
PART = re.compile(r"([1-9]\d*)/([1-9]\d*)")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--extent", type=_extent, default="full", help="quick, usual, full, or a part: 2/6")


def _extent(text: str) -> str:
    if text not in EXTENTS and not PART.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither {', '.join(EXTENTS)} nor a part such as 2/6")
    return text


def first(usual: int, values: Iterable[Any]) -> list[Any]:
    """Return *values* for a parameter of which only the first ones belong to the usual extent."""
    values = list(values)
    return values[:usual] + [pytest.param(value, marks=pytest.mark.full) for value in values[usual:]]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = choose(items, config.getoption("--extent"))
    left_out = [item for item in items if item not in chosen]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item in chosen]
    if hasattr(config, "workerinput"):  # of xdist, which deals out tests in this order
        items.sort(key=lambda item: item.path.parent.name in SHORT)


def choose(items: Iterable[pytest.Item], extent: str) -> set[pytest.Item]:
    """Return which of the *items* belong to that *extent*."""
    if extent == "full":
        return set(items)
    alike: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        alike[_question(item)].append(item)
    if extent == "quick":
        return {one for group in alike.values() for one in _quick(group)}
    usual = {one for group in alike.values() for one in _usual(group)}
    if extent == "usual":
        return usual
    part, parts = map(int, extent.split("/"))
    return {item for item in items if item not in usual and crc32(item.nodeid.encode()) % parts == part - 1}


def _usual(group: list[pytest.Item]) -> Iterable[pytest.Item]:
    group = [item for item in group if item.get_closest_marker("full") is None]
    if len(group) < 2:
        return group
    name = group[0].path.name
    if name.startswith(OF_THE_STORE):
        return [one for kind in {_store(item) for item in group} for one in _one(group, store=kind)]
    local = [item for item in group if _store(item) in (*LOCAL, None)]
    remote = [item for item in group if item not in local]
    if name.startswith(OF_THE_CLIENT) or not remote:
        return [one for way in {_way(item) for item in local} for one in _one(local, way=way)]
    chosen = _one(local)
    other_way = [item for item in remote if not chosen or _way(item) != _way(chosen[0])]
    return chosen + _one(other_way or remote)


def _quick(group: list[pytest.Item]) -> Iterable[pytest.Item]:
    return _one(
        [item for item in group if not _needs_a_server(item) and item.get_closest_marker("full") is None]
    )


def _one(items: list[pytest.Item], **wanted: str | None) -> list[pytest.Item]:
    """Return one of the *items*, a different one for different questions."""
    if "store" in wanted:
        items = [item for item in items if _store(item) == wanted["store"]]
    if "way" in wanted:
        items = [item for item in items if _way(item) == wanted["way"]]
    if not items:
        return []
    items = sorted(items, key=lambda item: item.nodeid)
    return [items[crc32(_question(items[0]).encode()) % len(items)]]


def _question(item: pytest.Item) -> str:
    """Return what tells a test from all others, but for the store and the way in which it is asked."""
    words = re.split(r"[\[\]-]", BEHIND.sub("behind", item.nodeid))
    return "-".join(word for word in words if word not in (*LOCAL, *DATABASES, *WAYS, "http"))


def _values(item: pytest.Item) -> list[object]:
    callspec = getattr(item, "callspec", None)
    return list(callspec.params.values()) if callspec else []


def _store(item: pytest.Item) -> str | None:
    if behind := BEHIND.search(item.nodeid):
        return behind[1]
    known = (value for value in _values(item) if value in (*LOCAL, *DATABASES, *SERVED))
    return next(known, None)


def _way(item: pytest.Item) -> str | None:
    return next((value for value in _values(item) if value in WAYS), None)


def _needs_a_server(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    return bool(fixtures & NEEDS_A_SERVER) or _store(item) in (*DATABASES, *SERVED)
