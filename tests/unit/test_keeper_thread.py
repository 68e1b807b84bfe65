"""The keeper's thread: what it asks about at once, whichever comes first, a signal or its lease."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.client.keeper_thread import KeeperThread
from holdfast.clock import boot_time
from holdfast.core.plans import Grant
from holdfast.core.requests import LeaseAnswer, Renew, Renewed, RenewLease
from holdfast.core.settings import Settings

TTL = 60.0
WAIT = 10.0


class AStore:
    """A store that has everything that it is asked about, and can be reached when it is told so."""

    def __init__(self) -> None:
        self.traits = SimpleNamespace(swept=True, tells_holders=True)
        self.asked: queue.Queue[Renew] = queue.Queue()
        self.reachable = threading.Event()

    def be_reachable(self) -> None:
        assert self.reachable.wait(WAIT)

    def execute(self, request: Renew) -> Renewed:
        self.asked.put(request)
        return Renewed(leases=tuple(LeaseAnswer("held", TTL) for _ in request.leases))


@pytest.fixture
def store() -> AStore:
    return AStore()


@pytest.fixture
def keeping(store: AStore) -> Iterator[KeeperThread]:
    keeping = KeeperThread(store, Settings(), print)  # type: ignore[arg-type]
    yield keeping
    store.reachable.set()
    keeping.stop()


def keep(keeping: KeeperThread, attempt: str, asked: float, **how: Any) -> None:
    grant = Grant("nightly", attempt, "ann", 8, TTL, trusted_until=asked + TTL - 1.0)
    keeping.keep(grant, asked=asked, **({"max_hold": None, "renew": True} | how))


def asked_about(store: AStore) -> tuple[RenewLease, ...]:
    return store.asked.get(timeout=WAIT).leases


def started(keeping: KeeperThread, store: AStore) -> None:
    """Let the thread come to where it waits, with one lease, about which it has asked."""
    keep(keeping, "a-0", boot_time())
    store.reachable.set()
    assert asked_about(store) == (RenewLease("nightly", "a-0", 8, TTL),)


def test_a_signal_that_overtakes_the_answer_of_a_grant_is_asked_about(
    keeping: KeeperThread, store: AStore
) -> None:
    started(keeping, store)
    asked = boot_time()
    keeping.hurry("a-1")
    keep(keeping, "a-1", asked)
    assert asked_about(store) == (RenewLease("nightly", "a-1", 8, TTL),)


@pytest.mark.parametrize("how", [{"renew": False}, {"max_hold": TTL}], ids=["renew=False", "max_hold"])
def test_a_signal_about_a_lease_that_is_not_renewed_is_asked_about(
    keeping: KeeperThread, store: AStore, how: dict[str, Any]
) -> None:
    started(keeping, store)
    keep(keeping, "a-1", boot_time(), **how)
    keeping.hurry("a-1")
    assert asked_about(store) == (RenewLease("nightly", "a-1", 8, 0.0),)


def test_who_can_be_told_only_now_asks_about_what_was_asked_for_before(
    keeping: KeeperThread, store: AStore
) -> None:
    """A signal for it may have been sent when nobody could be told: also if its answer is still under way."""
    asked = boot_time()
    started(keeping, store)
    keep(keeping, "a-1", asked)
    assert asked_about(store) == (RenewLease("nightly", "a-1", 8, TTL),)


def test_a_lease_that_is_watched_is_asked_about_and_not_renewed(keeping: KeeperThread, store: AStore) -> None:
    started(keeping, store)
    (kept,) = keeping.kept()
    keeping.drop("a-0")
    keeping.watch(kept)
    keeping.hurry("a-0")
    assert asked_about(store) == (RenewLease("nightly", "a-0", 8, 0.0),)
