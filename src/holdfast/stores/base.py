"""What a store is: something that answers requests, one round trip each.

The conformance suite in `holdfast.testing.conformance` is the definition; this module only names the
methods. Stores know `holdfast.core` and one driver, never each other and never the clients.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from holdfast import errors
from holdfast.core.access import ListAccess
from holdfast.core.cluster import CountWork, InspectWork, ListInstances, ListWork
from holdfast.core.data import data
from holdfast.core.events import HistoryLevel
from holdfast.core.requests import MOST_SHOWN, Client, History, Inspect, List, Request, Signal, Watch

A = TypeVar("A")
E = TypeVar("E", bound=errors.StoreError)
UP_TO_DATE = "up to date"  # how the status of tables ends if nothing is to be done about them
Listener = Callable[[Signal], None]

# Has something awaited in the task that a thread works for, and returns what came of it.
Awaits = Callable[[Callable[[], Awaitable[Any]]], Any]

# For how long an ended attempt is remembered, in microseconds: longer than any statement can be late. A
# break is remembered until the holder will have asked, however rarely it renews.
REMEMBER = {
    **dict.fromkeys(("released", "withdrawn", "expired", "deadlocked", "refused"), 60_000_000),
    "broken": 86_400_000_000,
    # A waiter may come back late for the outcome of an operation: its whole machine may have been paused.
    **dict.fromkeys(("done", "failed"), 600_000_000),
}
WAITERS_SHOWN = MOST_SHOWN

# Requests that change nothing that anybody waits for. (To watch gives events their places.)
READS = frozenset(
    {Inspect, List, History, Watch, ListAccess, ListInstances, InspectWork, ListWork, CountWork}
)

# What an option in a url may say, where the answer is yes or no.
YES = {**dict.fromkeys(("on", "yes", "true", "1"), True), **dict.fromkeys(("off", "no", "false", "0"), False)}


def yes_or_no(text: str) -> bool:
    """Return what such an option says; raise `KeyError` if that is neither."""
    return YES[text.lower()]


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
    transactions: bool = False  # requests can be part of a caller's own transaction
    pins: bool = False  # a fence stops nobody but who would take over that key; otherwise all writers
    swept: bool = False  # whoever runs it tidies up: its clients need not, and may have no right to
    tells_holders: bool = True  # of a break, at once; if not, they learn of it by their next renewal
    groups: bool = False  # many requests at once cost little more than one: see `Store.execute_many`
    tells_watchers: bool = False  # who watches is told of the next event; if not, it looks often
    enters: bool = False  # whoever is handed a lock can enter by the signal: see the protocol
    at_once: bool = False  # it can answer some requests without waiting for anything: see `AtOnce`
    together: bool = False  # plain requests of several keys can share a commit: see `Together`


class Store(Protocol):
    """A store as the clients use it. All methods may be called from any thread."""

    @property
    def traits(self) -> Traits: ...

    def open(self) -> None:
        """Connect and check the schema; raise a `StoreError` that says what to do if that fails."""

    def execute(self, request: Request[A]) -> A:
        """Answer *request*, and signal whoever is concerned. Raise a `StoreError` if that fails."""

    def execute_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        """Answer *requests* as if one after the other, and return what each is answered, in their order.

        Where one fails, its place has a `StoreError`, and the others are none the worse. With the trait
        *groups* they are durable all at once, which costs as much as one by itself.
        """

    def execute_within(self, connection: Any, request: Request[A], awaits: Awaits | None = None) -> A:
        """Answer a `Fence`, `Release` or `Acquire` inside the transaction that is open on *connection*.

        It takes effect when the caller commits. *awaits* awaits what an asyncio driver's connection is told.
        Raise `SettingsError` if that cannot be: not this database, no transaction, or a store without any.
        """

    def listen(self, listener: Listener) -> None:
        """Call *listener*, from any thread, with the signals for this store's client."""

    def be_reachable(self) -> None:
        """Make sure that signals arrive from now on. Never raises: they are hints.

        Called once something is held, if the store tells holders. Who waits need not ask for it.
        """

    def before_fork(self) -> None:
        """Finish what is under way, start nothing new, and close what a child must not inherit."""

    def after_fork_in_parent(self) -> None:
        """Go on after a fork, in the process that forked."""

    def after_fork(self, client: Client) -> None:
        """Become the store of *client* in a forked child."""

    def close(self) -> None:
        """Let go of connections and threads."""


class AtOnce(Protocol):
    """What a store with the trait *at_once* has, for callers that must not wait: event loops."""

    def execute_at_once(self, request: Request[A]) -> A | None:
        """Answer *request* if that needs no waiting. None: nothing has happened, and `execute` is needed."""


class Together(Protocol):
    """What a store with the trait *together* has, for callers with several plain requests at a time."""

    def may_go_together(self, request: Request[Any]) -> bool:
        """Tell whether *request* is worth trying together with others. Asks nobody."""

    def try_together(self, requests: Sequence[Request[Any]]) -> list[Any]:
        """Answer requests that may go together, no two of them about the same key, in one transaction.

        It waits for no row that somebody has locked (for one that somebody has just made it may, as long as
        any request), and each answer is as durable as one by itself. None in a place: nothing has happened
        there, and `execute` is needed. A place may also have a `StoreError`.
        """


class GroupingStore(Store, Protocol):
    """A store with the trait *groups*."""

    def try_many(self, requests: Sequence[Request[Any]]) -> list[Any] | None:
        """Answer *requests* as `execute_many` does, if that waits for nobody else; None: nothing was done."""


class Tables(Protocol):
    """The tables of a store, for those who look after them."""

    def status(self) -> str:
        """Return the version in words; they end with `UP_TO_DATE` if it is this release's."""

    def script(self) -> str:
        """Return the SQL that makes them."""

    def apply(self) -> None:
        """Make them, or bring them up to this release's version."""

    def grants(self, role: str, *, serving: bool) -> str:
        """Return the SQL that lets *role* use them, for a lock server if *serving*. Asks nobody."""

    def grant(self, role: str, *, serving: bool) -> None:
        """Let *role* use them."""

    def held(self) -> int:
        """Return how many locks are held, as far as there are tables."""

    def drop(self) -> int:
        """Remove the tables; return how many there were."""


def not_made_yet(error: E) -> E:
    """Mark an error: somebody may be about to make what is missing. See `holdfast.stores.readiness`."""
    error.__dict__["_not_made_yet"] = True
    return error


def is_not_made_yet(error: errors.StoreError) -> bool:
    """Tell whether it was marked."""
    return "_not_made_yet" in error.__dict__


def micros(seconds: float) -> int:
    """Return whole microseconds: what stores keep, because sums of floats drift apart."""
    return round(seconds * 1_000_000)


def is_soon(expires_in: int, claim: int) -> bool:
    """Tell whether a lease may end before the next heartbeat of who waits for it with that claim window.

    In microseconds. `Settings` makes sure that a heartbeat comes within nine tenths of a claim window.
    """
    return 10 * expires_in < 9 * claim


def instant(now: float | None) -> int | None:
    """Return a request's time in whole microseconds; None if the store's own clock decides."""
    return None if now is None else micros(now)


def place_of(who: Any) -> dict[str, Any]:
    """Return where *who* is, a client or whoever waits or holds, as columns and statements name it."""
    return {"instance": who.instance, "host": who.host, "pid": who.pid}


def one_by_one(store: Store, requests: Sequence[Request[Any]]) -> list[Any]:
    """Answer many requests, for a store that has no better way: see `Store.execute_many`."""
    answers: list[Any] = []
    for request in requests:
        try:
            answers.append(store.execute(request))
        except Exception as error:  # noqa: BLE001 - told in its place; the others go on
            answers.append(failure(error))
    return answers


def failure(error: Exception) -> errors.StoreError:
    """Return what stands in the place of an answer that could not be given."""
    if isinstance(error, errors.StoreError):
        return error
    wrapped = errors.StoreError(f"the request cannot be answered: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
