"""What the tests of clusters and elections share: blocks and loops, in threads and in tasks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tests.clients.support import Actor, Stage, eventually

# Short enough to be waited for, long enough for a loaded machine: it heartbeats six times before it is dead.
MORTAL = {"heartbeat": 0.25, "ttl": 2.0}


def begin_block(actor: Actor, entered: Any, body: Callable[[Any], Any]) -> Future[Any]:
    """Enter something, run *body* with what it gives, and leave it. In tasks that is a coroutine function."""

    def block() -> Any:
        with entered as given:
            return body(given)

    async def async_block() -> Any:
        async with entered as given:
            return await body(given)

    return actor.start(async_block if hasattr(entered, "__aenter__") else block)


def next_of(actor: Actor, claims: Any) -> Any:
    """Return what a loop would be given next; None if it would end."""
    return begin_next(actor, claims).result(30)


def begin_next(actor: Actor, claims: Any) -> Future[Any]:
    def one() -> Any:
        return next(claims, None)

    async def async_one() -> Any:
        return await anext(claims, None)

    return actor.start(async_one if hasattr(claims, "__anext__") else one)


def works(stage: Stage, **options: Any) -> list[Any]:
    """Return all work that there is."""

    async def collect() -> list[Any]:
        return [view async for view in stage.locks.works(**options)]

    found: list[Any] = stage.call(collect if stage.is_async else lambda: list(stage.locks.works(**options)))
    return found


def states(stage: Stage) -> dict[str, str]:
    """Return the state of each piece of work."""
    return {view.key: view.state for view in works(stage)}


def until_state(stage: Stage, key: str, state: str) -> Any:
    """Wait until some work is in a state, and return it."""

    def there() -> Any:
        view = stage.call(stage.locks.work, key)
        return view if view is not None and view.state == state else None

    return eventually(there, f"{key} is {state}")


def instance_view(stage: Stage, instance: Any) -> Any:
    """Return how others see an instance."""
    return next(each for each in stage.call(stage.locks.instances) if each.id == instance.id)


def events(stage: Stage, key: str) -> list[str]:
    """Return what has happened to a key."""
    return [event.kind for event in stage.call(stage.locks.history, key)]
