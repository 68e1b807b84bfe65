"""Asks a store what no method of a client asks: one request after the other, over one connection."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, TypeVar

from holdfast import errors, identity
from holdfast.core.data import replace
from holdfast.core.requests import Request
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.readiness import when_ready

A = TypeVar("A")
P = TypeVar("P", bound=Request[Any])

PATIENCE = 5.0  # seconds for a store that cannot answer just now
PAUSE = 0.2


class Connection:
    """A store that is open for as long as it is asked."""

    def __init__(self, url: str, patience: float = 0.0) -> None:
        self._patience = patience
        self._store = open_store(url, StoreOptions(identity.new_client()))

    def __enter__(self) -> Connection:
        try:
            when_ready(self._store.open, self._patience)
        except BaseException:
            self._store.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._store.close()

    def ask(self, request: Request[A], *, twice: bool = True) -> A:
        """Ask; again for a while, if there is no answer. *twice*: also if it may have been done already."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self._store.execute(request)
            except errors.StoreUnavailable:
                if time.monotonic() > deadline:
                    raise
            except errors.OutcomeUnknown:
                if not twice or time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE)

    def pages(self, request: P, items: str) -> Iterator[Any]:
        """Ask for a list, page by page, and return what is on them: the *items* of each."""
        while True:
            page = self.ask(request)
            yield from getattr(page, items)
            if page.after is None:
                return
            request = replace(request, after=page.after)


def ask(url: str, request: Request[A], patience: float = 0.0) -> A:
    """Ask for one thing."""
    with Connection(url, patience) as connection:
        return connection.ask(request)
