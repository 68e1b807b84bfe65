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
from holdfast.core import requests as r
from holdfast.core.cluster import ListInstances
from holdfast.core.data import data, replace
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

    def __init__(self, url: str, prefix: str) -> None:
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
            yield failed("connect", error)
            return
        yield _took("connect", "it answers", time.perf_counter() - began)
        for name, check in (
            ("schema", self._schema),
            ("session", self._session),
            ("take and release", self._privileges),
            ("clock", self._clock),
            ("signals", self._signals),
            ("round trip", self._round_trip),
        ):
            try:
                finding = check(name, store, client)
            except errors.HoldfastError as error:
                finding = failed(name, error)
            if finding is not None:
                yield finding

    def _open(self) -> tuple[Store, r.Client]:
        client = identity.new_client()
        store = open_store(self.url, StoreOptions(client, "none"))
        self._opened.append(store)
        store.open()
        return store, client

    def _schema(self, name: str, store: Store, client: r.Client) -> Finding | None:
        try:
            text = open_tables(self.url, StoreOptions(client)).status()
        except errors.SettingsError:  # it has no tables
            return None
        good = text.endswith(UP_TO_DATE)
        return Finding(name, good, text, "" if good else "holdfast schema apply URL")

    def _session(self, name: str, store: Store, client: r.Client) -> Finding | None:
        """Say what somebody has set for this account, or this database, that cannot be left as it is."""
        if not hasattr(store, "remarks"):
            return None
        remarks = "; ".join(store.remarks())
        well = "nothing that is set here had to be overridden"
        return Finding(name, None if remarks else True, remarks or well)

    def _privileges(self, name: str, store: Store, client: r.Client) -> Finding:
        attempt = secrets.token_hex(16)
        began = time.perf_counter()
        granted = store.execute(self._acquire(client, attempt))
        if not isinstance(granted, r.Granted):
            return Finding(name, False, f"a lock that nobody has was not granted: {granted!r}")
        ended = store.execute(r.Release(self.key, attempt, granted.token))
        if isinstance(ended, r.NotHeld):
            return Finding(name, False, f"what was granted was not held a moment later: {ended.why}")
        return _took(name, "a lock can be taken and released", time.perf_counter() - began)

    def _clock(self, name: str, store: Store, client: r.Client) -> Finding:
        """Compare clocks: the token of a key that is new is the store's time in microseconds."""
        attempt = secrets.token_hex(16)
        before = time.time()
        try:
            granted = store.execute(self._acquire(client, attempt))
            after = time.time()
            if not isinstance(granted, r.Granted):
                return Finding(name, None, "could not be compared")
            store.execute(r.Release(self.key, attempt, granted.token))
        except errors.HoldfastError as error:
            return Finding(name, None, f"could not be compared: {error}")
        ahead = granted.token / 1e6 - (before + after) / 2
        if abs(ahead) <= max(SMALL_DIFFERENCE, after - before):
            return Finding(name, True, f"the store's clock and ours differ by {abs(ahead):.3f} s")
        way = "ahead of" if ahead > 0 else "behind"
        return Finding(
            name,
            None,
            f"the store's clock is {abs(ahead):.1f} s {way} ours; only its own decides, so locks are right",
            "check the time service (NTP) of both machines: tokens follow the store's clock",
        )

    def _signals(self, name: str, store: Store, client: r.Client) -> Finding:
        """Let one client wait for what the other has, and see whether the hand-over is told."""
        if not store.traits.signals:
            return Finding(name, None, "this store wakes nobody; waiters ask every heartbeat (2 s)")
        told = threading.Event()
        arrived = 0.0

        def listener(signal: r.Signal) -> None:
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
            if not isinstance(granted, r.Granted) or not isinstance(queued, r.Queued):
                return Finding(name, False, f"nobody had to wait: {granted!r}, {queued!r}")
            began = time.perf_counter()
            store.execute(r.Release(self.key, first, granted.token))
            heard = told.wait(SIGNAL_WITHIN)
            claimed = waiter.execute(self._acquire(other, second))
            if isinstance(claimed, r.Granted):  # a withdrawal would be remembered for a while
                waiter.execute(r.Release(self.key, second, claimed.token))
        except errors.HoldfastError:
            with suppress(errors.HoldfastError):
                store.execute(r.Withdraw(self.key, second))
            raise
        if heard:
            return _took(name, "a waiter is woken", max(arrived - began, 0.0))
        return Finding(
            name,
            False,
            f"no wake-up has arrived within {SIGNAL_WITHIN:g} s; waiters ask every heartbeat (2 s) instead",
            "is a pooler or proxy in between that holds back notifications? See the how-to of this database",
        )

    def _round_trip(self, name: str, store: Store, client: r.Client) -> Finding:
        took = []
        question: r.Inspect | r.Release = r.Inspect(self.key)
        try:
            store.execute(question)
        except errors.AccessDenied:  # who may not look may still give back what it has not got
            question = r.Release(self.key, secrets.token_hex(16), 1)
        for _ in range(ROUND_TRIPS):
            began = time.perf_counter()
            store.execute(question)
            took.append(time.perf_counter() - began)
        median = statistics.median(took)
        finding = _took(name, f"the median of {ROUND_TRIPS}, the longest took {_ms(max(took))}", median)
        slow = "every lock costs at least one: be nearer to the store, or use longer ttls"
        return finding if median <= SLOW else replace(finding, good=None, advice=slow)

    def _acquire(self, client: r.Client, attempt: str, *, wait: bool = False) -> r.Acquire:
        owner = f"holdfast-doctor-{attempt[:12]}"
        return r.Acquire(self.key, attempt, owner, TTL, client, wait=wait)

    def _tidy(self) -> None:
        """Forget the probe, if we may; otherwise the next sweep does.

        A sweep that has no patience would also forget who has left or died just now, so where instances have
        joined it is left to the next one as well.
        """
        if self._opened:
            before = self.key[:-1] + chr(ord(self.key[-1]) - 1) + "~"  # the probe is the next key after it
            with suppress(errors.HoldfastError):
                if not self._opened[0].execute(ListInstances(limit=1)).instances:
                    self._opened[0].execute(r.Sweep(limit=1, after=before, idle=0.0))


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


def failed(name: str, error: errors.HoldfastError) -> Finding:
    """Return that a check ended with an error, and what to do about it beside what it says itself."""
    advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), "")
    return Finding(name, False, str(error), advice)
