"""What a store is: something that answers requests, one round trip each.

The conformance suite in `holdfast.testing.conformance` is the definition; this module only names the
methods. Stores know `holdfast.core` and one driver, never each other and never the clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from holdfast.core.data import data
from holdfast.core.events import HistoryLevel
from holdfast.core.requests import Client, Request, Signal

A = TypeVar("A")
Listener = Callable[[Signal], None]

# For how long an ended attempt is remembered, in microseconds: longer than any statement can be late. A
# break is remembered until the holder will have asked, however rarely it renews.
REMEMBER = {
    "released": 60_000_000,
    "withdrawn": 60_000_000,
    "expired": 60_000_000,
    "broken": 86_400_000_000,
}
WAITERS_SHOWN = 100


@data
class StoreOptions:
    """What a client tells the store it opens."""

    client: Client
    history: HistoryLevel = "notable"


@data
class Traits:
    """What is true of one store and not of another. The conformance suite checks each claim."""

    durable: bool  # locks outlive the process
    signals: bool  # waiters are woken; if not, they learn of a hand-over at their next heartbeat
    blocking: bool  # answering may wait for a disk or a network: not on an event loop's thread
    repeats: bool  # the transport may deliver a request twice by itself
    lanes: int = 1  # how many requests it is worth having under way at once


class Store(Protocol):
    """A store as the clients use it. All methods may be called from any thread."""

    @property
    def traits(self) -> Traits: ...

    def open(self) -> None:
        """Connect and check the schema; raise a `StoreError` that says what to do if that fails."""

    def execute(self, request: Request[A]) -> A:
        """Answer *request*, and signal whoever is concerned. Raise a `StoreError` if that fails."""

    def listen(self, listener: Listener) -> None:
        """Call *listener*, from any thread, with the signals for this store's client."""

    def be_reachable(self) -> None:
        """Make sure that signals arrive. Called once something is held. Never raises: they are hints."""

    def before_fork(self) -> None:
        """Finish what is under way, start nothing new, and close what a child must not inherit."""

    def after_fork_in_parent(self) -> None:
        """Go on after a fork, in the process that forked."""

    def after_fork(self, client: Client) -> None:
        """Become the store of *client* in a forked child."""

    def close(self) -> None:
        """Let go of connections and threads."""


def micros(seconds: float) -> int:
    """Return whole microseconds: what stores keep, because sums of floats drift apart."""
    return round(seconds * 1_000_000)


StoreFactory = Callable[[str, StoreOptions], Store]
AnyRequest = Request[Any]
