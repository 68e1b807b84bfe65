"""One operation, and 1,000 tasks of one client that wait for it: how soon does the last know the result?"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.measure import Preparing
from bench.report import Line, milliseconds
from holdfast import AsyncHoldfast, Holdfast

WAITERS = 1_000
ROUNDS = 2
RESULT = {"path": "/models/model-7b", "sha256": "0" * 64}
MOST_REQUESTS = 3.0


@dataclass
class Seen:
    """What came of one operation."""

    told: float = 0.0  # seconds from success to the last waiter
    looks: float = 0.0  # that as many requests which change nothing took the same client, as many at once
    requests: int = 0  # of the waiting client, from success on
    before: int = 0  # and in the time of a heartbeat before that, once all were in the queue
    at: list[float] = field(default_factory=list)


def measure(store: str, url: str, quick: bool, preparing: Preparing = nullcontext) -> list[Line]:
    """Let it succeed a few times, each time for a new crowd."""
    waiters = WAITERS // 5 if quick else WAITERS
    rounds = [
        asyncio.run(_once(url, f"pull:model-{number}", waiters, preparing, wait=number == 0))
        for number in range(ROUNDS)
    ]
    told, looks = (median(getattr(each, name) for each in rounds) for name in ("told", "looks"))
    requests = median(each.requests / waiters for each in rounds)
    return [
        Line(
            f"{store}: success → the last of {waiters:,} waiters told",
            milliseconds(told),
            f"{waiters:,} looks at a lock {milliseconds(looks)}",
            told / looks,
            means="From just before the block of who did it is left until each task of another client, in the"
            " same process, has the result, beside as many"
            " `inspect()` of another key by that client.",
        ),
        Line(
            f"{store}: requests per waiter after queueing",
            f"{requests:.2f}",
            f"before, for all: {rounds[0].before} a heartbeat",
            requests,
            MOST_REQUESTS,
            least=False,
            unit="",
            means="All requests of the client from success on, heartbeats too, for each of its waiters.",
            label=f"{store} operation: requests per waiter",
        ),
    ]


async def _once(url: str, key: str, waiters: int, preparing: Preparing, *, wait: bool) -> Seen:
    seen = Seen()
    sent: list[Any] = []
    with Holdfast(url) as doer:
        async with AsyncHoldfast(url) as locks:
            with preparing():
                operation = doer.operation(*key.split(":"), owner="doer")
                operation.__enter__()
                waiting = [asyncio.create_task(_wait(locks, key, number)) for number in range(waiters)]
                while (view := await locks.inspect(key)) is None or view.waiting < waiters:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            started = time.perf_counter()
            await asyncio.gather(*(locks.inspect("something else") for _ in range(waiters)))
            seen.looks = time.perf_counter() - started
            real = locks._engine.store.execute

            def counted(request: Any) -> Any:
                sent.append(request)
                return real(request)

            locks._engine.store.execute = counted  # type: ignore[method-assign]
            if wait:
                await asyncio.sleep(locks.settings.heartbeat)
            seen.before = len(sent)
            sent.clear()

            def succeed() -> None:
                operation.succeed(RESULT)
                seen.at.append(time.perf_counter())
                operation.__exit__(None, None, None)

            leaving = threading.Thread(target=succeed)
            leaving.start()
            results = await asyncio.gather(*waiting)
            seen.told = time.perf_counter() - seen.at[0]
            seen.requests = len(sent)
            leaving.join()
            assert results == [RESULT] * waiters
    return seen


async def _wait(locks: AsyncHoldfast, key: str, number: int) -> Any:
    async with locks.operation(*key.split(":"), owner=f"waiter-{number}") as operation:
        assert not operation.todo
        return operation.result
