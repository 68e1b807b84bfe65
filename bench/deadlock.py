"""What does it cost to look for deadlocks, when 1,000 owners wait?

Whoever joins a queue may close a circle. Looking for it begins with one question: does anybody wait for
something that we hold? Here one owner joins and leaves a queue, at the store, and only the joining is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from bench import bare
from bench.growing import LONG
from bench.measure import Preparing, costs
from bench.report import Line, microseconds
from bench.sqlite_pair import CLIENT
from holdfast.core.requests import Acquire, Granted, Queued, Withdraw
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions

WAITERS = 1_000
CHAIN = 30


def measure(
    store: str,
    empty: str,
    full: str,
    quick: bool,
    preparing: Preparing = nullcontext,
) -> list[Line]:
    """Join queues where nobody waits, and where many do."""
    waiters, chain = (WAITERS // 5, CHAIN // 3) if quick else (WAITERS, CHAIN)
    few, many = (open_store(url, StoreOptions(CLIENT)) for url in (empty, full))
    few.open()
    many.open()
    try:
        with preparing():
            for each in (few, many):
                _hold(each, "other", "somebody")
                _hold(each, "mine", "me")
            _hold(many, "busy", "somebody else")
            for number in range(waiters):
                _join(many, "busy", f"waiter-{number}")
            _join(many, "mine", "one who waits for me")
            # The first waits for the second, who waits for the third …; the last one's holder goes on.
            for number in range(chain + 1):
                _hold(many, f"link-{number}", f"owner-{number}")
            for number in range(chain):
                _join(many, f"link-{number + 1}", f"owner-{number}")
        seen = costs(
            {
                "empty": _joining(few, "other", "me"),
                "nothing": _joining(many, "other", "who holds nothing"),
                "held": _joining(many, "other", "me"),
                "behind": _joining(many, "busy", "me"),
                "chain": _joining(many, "link-0", "me"),
            },
            rounds=5,
            seconds=0.2 if quick else 0.3,
        )
    finally:
        few.close()
        many.close()
    took = {name: 1 / each.rate for name, each in seen.items()}
    cases = (
        ("nothing", f"joining a queue, {waiters:,} wait elsewhere", 1.5, "It holds nothing."),
        ("held", "… holding what another waits for", None, "The queue it joins is short."),
        ("behind", f"… and behind {waiters:,} others", None, "Everybody before it may be part of a circle."),
        ("chain", f"… and for a chain of {chain}", None, "Each of them waits for the next."),
    )
    return [
        Line(
            what if what.startswith("…") else f"{store}: {what}",
            microseconds(took[name]),
            f"nobody waits {microseconds(took['empty'])}",
            took[name] / took["empty"],
            target,
            least=False,
            means=f"At the store: one owner's `Acquire` that is queued. {means}",
            label=f"{store}: {what}",
        )
        for name, what, target, means in cases
    ]


def _acquire(key: str, owner: str) -> Acquire:
    return Acquire(key, bare.new_attempt(), owner, LONG, CLIENT, wait=True, patience=LONG, claim=LONG)


def _hold(store: Any, key: str, owner: str) -> None:
    answer = store.execute(_acquire(key, owner))
    assert isinstance(answer, Granted), answer


def _join(store: Any, key: str, owner: str) -> None:
    answer = store.execute(_acquire(key, owner))
    assert isinstance(answer, Queued), answer


def _joining(store: Any, key: str, owner: str) -> Callable[[int], float]:
    """Return a loop that joins a queue and leaves it again."""

    def loop(times: int) -> float:
        took = 0.0
        for _ in range(times):
            request = _acquire(key, owner)
            started = time.perf_counter()
            answer = store.execute(request)
            took += time.perf_counter() - started
            assert isinstance(answer, Queued), answer
            store.execute(Withdraw(key, request.attempt))
        return took

    return loop
