"""One uncontended pair in memory, beside dictionaries that do the least a leased lock can do."""

from __future__ import annotations

from itertools import cycle
from typing import Any

from bench import bare
from bench.measure import costs
from bench.report import Line, per_second
from bench.sqlite_pair import CLIENT, Keys, async_loop, plan_loop, public_loop, store_loop
from holdfast import Holdfast
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions

TITLE = "Memory: one uncontended pair"
KEYS = 1000
LEAST = 0.1  # of the bare dictionary


def run(quick: bool) -> list[Line]:
    keys = cycle([f"key-{number}" for number in range(KEYS)]).__next__
    store = open_store("memory://", StoreOptions(CLIENT))
    layered = open_store("memory://", StoreOptions(CLIENT))
    async_pairs, close = async_loop("memory://", keys)
    with Holdfast("memory://") as locks:
        costs_of = costs(
            {
                "bare": bare_loop(keys),
                "store": store_loop(store, keys),
                "plan": plan_loop(layered, keys),
                "public": public_loop(locks, keys),
                "async": async_pairs,
            },
            rounds=15 if quick else 25,
            seconds=0.3 if quick else 1.5,
        )
    close()
    seen = {name: 1 / cost.cpu for name, cost in costs_of.items()}  # a second of one core
    beside = f"bare dictionary {per_second(seen['bare'])}"
    return [
        Line(
            "pair, public API",
            per_second(seen["public"]),
            beside,
            seen["public"] / seen["bare"],
            LEAST,
            means="`with locks.hold(key): pass`, beside 64 dictionaries with a mutex each that check lease,"
            " token and owner; a second is one of processor time.",
            label="memory pair",
        ),
        *(
            Line(
                f"… {name}",
                per_second(seen[layer]),
                beside,
                seen[layer] / seen["bare"],
                means=means,
                label=f"memory pair, {name}",
            )
            for layer, name, means in (
                (
                    "store",
                    "the store alone",
                    "An `Acquire` and a `Release` made by hand and given to the store.",
                ),
                ("plan", "with plans", "The same, run by the plans of the core."),
                (
                    "async",
                    "async API",
                    "`async with locks.hold(key): pass`; memory is asked on the loop's thread.",
                ),
            )
        ),
    ]


def bare_loop(keys: Keys) -> Any:
    """Take and release in dictionaries."""
    locks = bare.BareDict()

    def loop(times: int) -> None:
        for _ in range(times):
            key = keys()
            token = locks.acquire(key, bare.OWNER, bare.TTL)
            locks.release(key, bare.OWNER, token)

    return loop
