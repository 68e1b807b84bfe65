"""Instances that do as they are told, one request at a time, on whatever store a URL names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast import identity
from holdfast.core.cluster import (
    Assigned,
    Claim,
    Claimed,
    Ending,
    Finish,
    Heartbeat,
    Join,
    Leave,
    Offer,
    OfferedWork,
)
from holdfast.core.requests import Client
from holdfast.stores import open_store
from holdfast.stores.base import Store, StoreOptions

LONG = 600.0
CLIENT = Client("", "host-1", 4242)


class Fleet:
    """Some instances, and what they have. They are as alive as their first heartbeat makes them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._claims = 0

    def join(self, name: str, *, id: str = "", capacity: int = 4, ttl: float = LONG, **more: Any) -> str:
        """Let one join, and return its id."""
        id = id or f"id-{name}"
        self.store.execute(Join(id, name, CLIENT, capacity, ttl, **more))
        return id

    def drain(self, id: str) -> None:
        self.store.execute(Heartbeat(id, CLIENT, LONG, drain=True))

    def leave(self, id: str) -> None:
        self.store.execute(Leave(id))

    def offer(self, *keys: str, data: Any = None, **more: Any) -> None:
        works = (OfferedWork(key, json.dumps(data), **more) for key in keys)
        self.store.execute(Offer(tuple(works)))

    def claim(self, id: str, *types: str, limit: int = 1, ttl: float = LONG) -> list[Assigned]:
        """Let one take work that is offered."""
        self._claims += 1
        claim = Claim(id, self._claims, f"{id}-{self._claims}", types, limit, ttl, CLIENT)
        claimed = self.store.execute(claim)
        assert isinstance(claimed, Claimed), claimed
        return list(claimed.works)

    def finish(self, work: Assigned, ending: Ending, text: str = "", **more: Any) -> None:
        self.store.execute(Finish(work.key, work.attempt, work.token, ending, text, **more))


@contextmanager
def fleet_at(url: str) -> Iterator[Fleet]:
    """Open a store for a fleet."""
    store = open_store(url, StoreOptions(identity.new_client()))
    store.open()
    try:
        yield Fleet(store)
    finally:
        store.close()
