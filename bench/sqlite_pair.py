"""One uncontended pair in an SQLite file: what the library adds to the two statements, layer by layer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

from bench import bare
from bench.measure import Cost, costs, folder
from bench.report import Line, microseconds, per_second
from holdfast import AsyncHoldfast, Holdfast, Settings
from holdfast.clock import boot_time
from holdfast.core import plans
from holdfast.core.requests import Acquire, Client, Release
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions

TITLE = "SQLite: one uncontended pair"
KEYS = 200
CLIENT = Client(bare.WHO["instance"], bare.WHO["host"], bare.WHO["pid"])

Keys = Callable[[], str]


def run(quick: bool) -> list[Line]:
    lines = []
    for synchronous, distinct in (("normal", True), ("normal", False), ("full", True)):
        seen = layers(synchronous, distinct, quick)
        which = f"{'distinct keys' if distinct else 'one key'}, {synchronous}"
        bare_rate, public = seen["bare"].rate, seen["public"].rate
        lines.append(
            Line(
                f"pair, {which}",
                per_second(public),
                f"bare {per_second(bare_rate)}",
                public / bare_rate,
                0.6,
                means="`with locks.hold(key): pass`, with renewal, beside the same statements in sqlite3.",
                label=f"SQLite pair, {which}",
            )
        )
        lines.append(
            Line(
                f"… beside the leanest, {which}",
                per_second(public),
                f"leanest {per_second(seen['leanest'].rate)}",
                public / seen["leanest"].rate,
                0.6,
                means="The same, beside the leanest two statements that take and free a lease: a key, an"
                " owner, a token and an end in a table whose only index is its key.",
            )
        )
        if synchronous == "normal" and distinct:
            lines += split(seen)
        lines.append(
            Line(
                f"… async, {which}",
                per_second(seen["async"].rate),
                f"bare {per_second(bare_rate)}",
                seen["async"].rate / bare_rate,
                0.5,
                means="`async with locks.hold(key): pass`: on the event loop's own thread where commits do"
                " not wait for the disk, otherwise two trips to the thread that talks to the file.",
                label=f"SQLite pair, async, {which}",
            )
        )
    return lines


def split(seen: dict[str, Cost]) -> list[Line]:
    """Say where the processor time of a pair goes: each layer less the one below it."""
    used = {name: cost.cpu for name, cost in seen.items()}
    parts = {
        "the two statements": used["bare"],
        "the store": used["store"] - used["bare"],
        "the plans": used["plan"] - used["store"],
        "client, lease and keeper": used["public"] - used["plan"],
    }
    return [
        Line(
            f"… of it {name}",
            microseconds(max(took, 0.0)),
            f"of {microseconds(used['public'])} of processor time",
            took / used["public"],
            means="Processor time, which other work on the machine disturbs less: what each layer adds to the"
            " one below, measured by running the layers below alone.",
        )
        for name, took in parts.items()
    ]


def layers(synchronous: str, distinct: bool, quick: bool) -> dict[str, Cost]:
    """Return the cost of a pair at each layer, measured in interleaved rounds on files of the same kind."""
    rounds = 15 if quick else 25
    seconds = 0.45 if quick else 1.5
    names = [f"key-{number}" for number in range(KEYS)] if distinct else ["key"]
    keys = cycle(names).__next__
    with folder() as place:
        loops: dict[str, Any] = {}
        closing = []
        for name, make in LAYERS.items():
            file = place / f"{name}.db"
            bare.create(file, synchronous)
            loops[name], close = make(file, synchronous, keys)
            closing.append(close)
            loops[name](len(names))  # every key has its row
        try:
            return costs(loops, rounds=rounds, seconds=seconds)
        finally:
            for close in closing:
                close()


def _bare(file: Path, synchronous: str, keys: Keys) -> tuple[Any, Any]:
    connection = bare.connect(file, synchronous)
    pair = bare.BareSQLite(connection).pair

    def loop(times: int) -> None:
        for _ in range(times):
            pair(keys())

    return loop, connection.close


def _leanest(file: Path, synchronous: str, keys: Keys) -> tuple[Any, Any]:
    connection = bare.connect(file.with_suffix(".lean"), synchronous)
    connection.execute(
        "CREATE TABLE lease (key TEXT PRIMARY KEY, owner TEXT, token INTEGER NOT NULL,"
        " expires_at INTEGER NOT NULL) WITHOUT ROWID"
    )
    execute = connection.execute

    def loop(times: int) -> None:
        for _ in range(times):
            asked = {"key": keys(), "owner": bare.new_attempt(), "ttl": 30_000_000}
            ((token,),) = execute(_TAKE, asked).fetchall()
            assert execute(_FREE, {**asked, "token": token}).fetchall()

    return loop, connection.close


_NOW = "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)"
_TAKE = f"""
INSERT INTO lease (key, owner, token, expires_at) VALUES (:key, :owner, 1, {_NOW} + :ttl)
    ON CONFLICT (key) DO UPDATE
   SET owner = excluded.owner, token = token + 1, expires_at = excluded.expires_at
 WHERE owner IS NULL OR expires_at <= {_NOW}
RETURNING token
"""
_FREE = "UPDATE lease SET owner = NULL WHERE key = :key AND owner = :owner AND token = :token RETURNING 1"


def _store(file: Path, synchronous: str, keys: Keys) -> tuple[Any, Any]:
    store = open_store(f"sqlite:///{file}?synchronous={synchronous}", StoreOptions(CLIENT))
    store.open()
    return store_loop(store, keys), store.close


def store_loop(store: Any, keys: Keys) -> Any:
    """Ask a store for pairs, with requests made by hand."""

    def loop(times: int) -> None:
        execute = store.execute
        for _ in range(times):
            key, attempt = keys(), bare.new_attempt()
            answer = execute(Acquire(key, attempt, bare.OWNER, bare.TTL, CLIENT, wait=True))
            execute(Release(key, attempt, answer.token))

    return loop


def _plan(file: Path, synchronous: str, keys: Keys) -> tuple[Any, Any]:
    store = open_store(f"sqlite:///{file}?synchronous={synchronous}", StoreOptions(CLIENT))
    store.open()
    return plan_loop(store, keys), store.close


def plan_loop(store: Any, keys: Keys) -> Any:
    """Run the plans of a pair by hand, without a client."""
    settings = Settings()
    tools = {"settings": settings, "clock": boot_time, "roll": random.random}

    def run_plan(plan: Any) -> Any:
        try:
            step = next(plan)
            while True:
                step = plan.send(store.execute(step))
        except StopIteration as done:
            return done.value

    def loop(times: int) -> None:
        for _ in range(times):
            request = Acquire(keys(), bare.new_attempt(), bare.OWNER, bare.TTL, CLIENT, wait=True)
            run_plan(plans.release(run_plan(plans.acquire(request, timeout=None, **tools)), **tools))

    return loop


def _public(file: Path, synchronous: str, keys: Keys) -> tuple[Any, Any]:
    locks = Holdfast(f"sqlite:///{file}?synchronous={synchronous}")
    return public_loop(locks, keys), locks.close


def public_loop(locks: Holdfast, keys: Keys) -> Any:
    """Do what users do."""

    def loop(times: int) -> None:
        for _ in range(times):
            with locks.hold(keys()):
                pass

    return loop


def _async(file: Path, synchronous: str, keys: Keys) -> tuple[Any, Any]:
    return async_loop(f"sqlite:///{file}?synchronous={synchronous}", keys)


def async_loop(url: str, keys: Keys) -> tuple[Any, Any]:
    """Do what users of asyncio do, in a loop of our own that is kept between rounds."""
    events = asyncio.new_event_loop()
    locks = events.run_until_complete(AsyncHoldfast(url).__aenter__())

    async def pairs(times: int) -> None:
        for _ in range(times):
            async with locks.hold(keys()):
                pass

    def close() -> None:
        events.run_until_complete(locks.close())
        events.close()

    return lambda times: events.run_until_complete(pairs(times)), close


LAYERS = {
    "leanest": _leanest,
    "bare": _bare,
    "store": _store,
    "plan": _plan,
    "public": _public,
    "async": _async,
}
