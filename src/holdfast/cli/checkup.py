"""What ``holdfast doctor`` looks at: each check is a question with an answer in words, and what to do.

The probe is a lock with a random key of its own. It is released, and as far as one may it is forgotten at
once; no history is written.
"""

from __future__ import annotations

import secrets
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from holdfast import errors, identity
from holdfast.core.cluster import ListInstances
from holdfast.core.data import data
from holdfast.core.requests import (
    Acquire,
    Client,
    Granted,
    Inspect,
    NotHeld,
    Queued,
    Release,
    Signal,
    Sweep,
    Withdraw,
)
from holdfast.stores import open_store, open_tables
from holdfast.stores.base import UP_TO_DATE, Store, StoreOptions

ROUND_TRIPS = 20
SIGNAL_WITHIN = 3.0  # seconds; a heartbeat comes sooner
TTL = 10.0
SMALL_DIFFERENCE = 5.0  # of clocks: only logs and dashboards look odd with more
SLOW = 0.25  # seconds a round trip may take before it is worth a remark


@data
class Finding:
    """One answer. *good* is None for what is no more than a remark, or could not be tried."""

    name: str
    good: bool | None
    text: str
    advice: str = ""
    milliseconds: float | None = None


class Checkup:
    """Looks at one store, as far as it can get."""

    def __init__(self, url: str, prefix: str = "holdfast-doctor:") -> None:
        self.url = url
        self.key = f"{prefix}{secrets.token_hex(8)}"
        self._opened: list[Store] = []

    def run(self) -> Iterator[Finding]:
        """Return the findings, as they are made."""
        try:
            yield from self._run()
        finally:
            self._tidy()
            for store in self._opened:
                store.close()

    def _run(self) -> Iterator[Finding]:
        began = time.perf_counter()
        try:
            store, client = self._open()
        except errors.HoldfastError as error:
            yield Finding("connect", False, str(error), advice(error))
            return
        yield _took("connect", "it answers", time.perf_counter() - began)
        yield from self._schema()
        yield from self._session(store)
        yield self._privileges(store, client)
        yield self._clock(store, client)
        yield self._signals(store, client)
        yield self._round_trip(store)

    def _open(self) -> tuple[Store, Client]:
        client = identity.new_client()
        store = open_store(self.url, StoreOptions(client, "none"))
        self._opened.append(store)
        store.open()
        return store, client

    def _schema(self) -> Iterator[Finding]:
        try:
            text = open_tables(self.url, StoreOptions(identity.new_client())).status()
        except errors.SettingsError:  # it has no tables
            return
        except errors.StoreError as error:
            yield Finding("schema", False, str(error), advice(error))
            return
        good = text.endswith(UP_TO_DATE)
        yield Finding("schema", good, text, "" if good else "holdfast schema apply URL")

    def _session(self, store: Store) -> Iterator[Finding]:
        """Say what somebody has set for this account, or this database, that cannot be left as it is."""
        if not hasattr(store, "remarks"):
            return
        try:
            remarks: list[str] = store.remarks()
        except errors.StoreError as error:
            yield Finding("session", False, str(error), advice(error))
            return
        if not remarks:
            yield Finding("session", True, "nothing that is set here had to be overridden")
        else:
            yield Finding("session", None, "; ".join(remarks))

    def _privileges(self, store: Store, client: Client) -> Finding:
        name, attempt = "take and release", secrets.token_hex(16)
        began = time.perf_counter()
        try:
            granted = store.execute(self._acquire(client, attempt))
            if not isinstance(granted, Granted):
                return Finding(name, False, f"a lock that nobody has was not granted: {granted!r}")
            ended = store.execute(Release(self.key, attempt, granted.token))
        except errors.HoldfastError as error:
            return Finding(name, False, str(error), advice(error))
        if isinstance(ended, NotHeld):
            return Finding(name, False, f"what was granted was not held a moment later: {ended.why}")
        return _took(name, "a lock can be taken and released", time.perf_counter() - began)

    def _clock(self, store: Store, client: Client) -> Finding:
        """Compare clocks: the token of a key that is new is the store's time in microseconds."""
        attempt = secrets.token_hex(16)
        before = time.time()
        try:
            granted = store.execute(self._acquire(client, attempt))
            after = time.time()
            if not isinstance(granted, Granted):
                return Finding("clock", None, "could not be compared")
            store.execute(Release(self.key, attempt, granted.token))
        except errors.HoldfastError as error:
            return Finding("clock", None, f"could not be compared: {error}")
        ahead = granted.token / 1e6 - (before + after) / 2
        if abs(ahead) <= max(SMALL_DIFFERENCE, after - before):
            return Finding("clock", True, f"the store's clock and ours differ by {abs(ahead):.3f} s")
        way = "ahead of" if ahead > 0 else "behind"
        return Finding(
            "clock",
            None,
            f"the store's clock is {abs(ahead):.1f} s {way} ours; only its own decides, so locks are right",
            "check the time service (NTP) of both machines: tokens follow the store's clock",
        )

    def _signals(self, store: Store, client: Client) -> Finding:
        """Let one client wait for what the other has, and see whether the hand-over is told."""
        if not store.traits.signals:
            return Finding("signals", None, "this store wakes nobody; waiters ask every heartbeat (2 s)")
        told = threading.Event()
        arrived = 0.0

        def listener(signal: Signal) -> None:
            nonlocal arrived
            if signal.key == self.key and signal.kind == "granted" and not told.is_set():
                arrived = time.perf_counter()
                told.set()

        first, second = secrets.token_hex(16), secrets.token_hex(16)
        try:
            waiter, other = self._open()
            waiter.listen(listener)
            waiter.be_reachable()
            granted = store.execute(self._acquire(client, first))
            queued = waiter.execute(self._acquire(other, second, wait=True))
            if not isinstance(granted, Granted) or not isinstance(queued, Queued):
                return Finding("signals", False, f"nobody had to wait: {granted!r}, {queued!r}")
            began = time.perf_counter()
            store.execute(Release(self.key, first, granted.token))
            heard = told.wait(SIGNAL_WITHIN)
            claimed = waiter.execute(self._acquire(other, second))
            if isinstance(claimed, Granted):  # a withdrawal would be remembered for a while
                waiter.execute(Release(self.key, second, claimed.token))
        except errors.HoldfastError as error:
            with suppress(errors.HoldfastError):
                store.execute(Withdraw(self.key, second))
            return Finding("signals", False, str(error), advice(error))
        if heard:
            return _took("signals", "a waiter is woken", max(arrived - began, 0.0))
        return Finding(
            "signals",
            False,
            f"no wake-up has arrived within {SIGNAL_WITHIN:g} s; waiters ask every heartbeat (2 s) instead",
            "is a pooler or proxy in between that holds back notifications? See the how-to of this database",
        )

    def _round_trip(self, store: Store) -> Finding:
        took = []
        question: Inspect | Release = Inspect(self.key)
        try:
            try:
                store.execute(question)
            except errors.AccessDenied:  # who may not look may still give back what it has not got
                question = Release(self.key, secrets.token_hex(16), 1)
            for _ in range(ROUND_TRIPS):
                began = time.perf_counter()
                store.execute(question)
                took.append(time.perf_counter() - began)
        except errors.HoldfastError as error:
            return Finding("round trip", False, str(error), advice(error))
        median = statistics.median(took)
        finding = _took(
            "round trip", f"the median of {ROUND_TRIPS}, the longest took {_ms(max(took))}", median
        )
        if median <= SLOW:
            return finding
        return Finding(
            "round trip",
            None,
            finding.text,
            "every lock costs at least one: be nearer to the store, or use longer ttls",
            finding.milliseconds,
        )

    def _acquire(self, client: Client, attempt: str, *, wait: bool = False) -> Acquire:
        owner = f"holdfast-doctor-{attempt[:12]}"
        return Acquire(self.key, attempt, owner, TTL, client, wait=wait)

    def _tidy(self) -> None:
        """Forget the probe, if we may; else the next sweep does.

        A sweep that has no patience would also forget who has left or died just now, so where instances have
        joined it is left to the next one as well.
        """
        if self._opened:
            before = self.key[:-1] + chr(ord(self.key[-1]) - 1) + "~"  # the probe is the next key behind it
            with suppress(errors.HoldfastError):
                if not self._opened[0].execute(ListInstances(limit=1)).instances:
                    self._opened[0].execute(Sweep(limit=1, after=before, idle=0.0))


def _took(name: str, text: str, seconds: float) -> Finding:
    return Finding(name, True, f"{text} ({_ms(seconds)})", milliseconds=round(seconds * 1000, 3))


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


_ADVICE: tuple[tuple[type[errors.HoldfastError], str], ...] = (
    (errors.SchemaMismatch, "holdfast schema apply URL"),
    (
        errors.NotAuthenticated,
        "give an access token: HOLDFAST_ACCESS_TOKEN, or one made with 'holdfast token create'",
    ),
    (errors.AccessDenied, "ask for a token that may do this, or name a prefix of yours with --prefix"),
    (errors.StoreUnavailable, "does it run, is the address right, does a firewall let you through?"),
)


def advice(error: errors.HoldfastError) -> str:
    """Return what to do about an error, beside what it says itself."""
    return next((text for kind, text in _ADVICE if isinstance(error, kind)), "")
