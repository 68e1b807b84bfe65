"""The keeper: renews in batches, sleeps when there is nothing to do, and tidies up now and then."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from holdfast import Holdfast, Settings
from holdfast.core.data import replace
from holdfast.core.requests import Renew, Sweep
from tests.clients.support import QUICK, Spy, Stage, eventually


def renewals(spy: Spy) -> list[Renew]:
    return [request for request in list(spy.seen) if isinstance(request, Renew)]


def test_a_lease_is_renewed_for_as_long_as_it_is_held(stage: Stage) -> None:
    """And its holder trusts it further with every renewal."""
    locks = stage.client(settings=replace(QUICK, renew_at=0.1))
    spy = Spy(locks)
    lease = stage.call(locks.acquire, "nightly", ttl=5)
    started = lease._holding.kept.trusted_until
    eventually(lambda: spy.count(Renew) >= 3 and lease._holding.kept.trusted_until > started + 2.0)
    lease.check()
    assert stage.actor("other").call(stage.locks.try_acquire, "nightly") is None
    stage.call(lease.release)


def test_fifty_leases_travel_in_few_requests(stage: Stage) -> None:
    spy = Spy(stage.locks)
    leases = [stage.call(stage.locks.acquire, f"key-{n:02}", ttl=4.0) for n in range(50)]
    eventually(
        lambda: all(
            lease._holding.kept.trusted_until > lease._holding.kept.grant.trusted_until for lease in leases
        )
    )
    assert sum(len(request.leases) for request in renewals(spy)) >= 50
    assert len(renewals(spy)) <= 10
    for lease in leases:
        lease.check()
        stage.call(lease.release)


def test_short_holds_do_not_wake_the_keeper(stage: Stage) -> None:
    """It looks when the first lease is due at the earliest, however many come and go before."""
    lease = stage.call(stage.locks.acquire, "long", ttl=600)
    keeping = stage.locks._engine.keeper
    eventually(lambda: 0 < keeping._wake_at < math.inf)
    woken: list[Any] = []
    due = keeping._keeper.due
    keeping._keeper = SpyingKeeper(keeping._keeper, woken)
    for n in range(200):
        stage.call(stage.call(stage.locks.acquire, f"short-{n % 5}", ttl=600).release)
    assert woken == []
    keeping._keeper.due = due
    stage.call(lease.release)


class SpyingKeeper:
    """A keeper that writes down when its thread looks for what is due."""

    def __init__(self, keeper: Any, looked: list[Any]) -> None:
        self._keeper = keeper
        self._looked = looked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._keeper, name)

    def due(self, now: float) -> Any:
        self._looked.append(now)
        return self._keeper.due(now)


def test_a_short_lease_among_long_ones_is_renewed_in_time(stage: Stage) -> None:
    """The keeper sleeps until the long one is due, and has to be woken for the short one."""
    long = stage.call(stage.locks.acquire, "long", ttl=600)
    eventually(lambda: 0 < stage.locks._engine.keeper._wake_at < math.inf)
    short = stage.call(stage.locks.acquire, "short", ttl=5)
    started = short._holding.kept.trusted_until
    eventually(lambda: short._holding.kept.trusted_until > started)
    short.check()
    for lease in (short, long):
        stage.call(lease.release)


def test_a_client_without_leases_has_no_thread(url: str) -> None:
    before = set(threading.enumerate())
    with Holdfast(url) as locks:
        locks.inspect("nightly")
        locks.sweep()
        assert set(threading.enumerate()) <= before


def test_a_closed_client_leaves_no_thread(url: str) -> None:
    before = set(threading.enumerate())
    with Holdfast(url) as locks:
        _leases = [locks.acquire("nightly", owner="me") for _ in range(3)]
        assert not set(threading.enumerate()) <= before
    eventually(lambda: set(threading.enumerate()) <= before)


def test_renew_off_asks_for_no_renewal(stage: Stage) -> None:
    spy = Spy(stage.locks)
    lease = stage.call(stage.locks.acquire, "nightly", ttl=0.3, renew=False)
    eventually(lambda: not lease.held)
    assert spy.count(Renew) == 0


def test_the_settings_of_a_client_hold_for_its_locks(url: str) -> None:
    with Holdfast(url, ttl=7, max_hold=5, settings=Settings(limit=1)) as locks:
        assert locks.settings.ttl == 7
        with locks.hold("nightly", timeout=0) as lease:
            assert lease.ttl == 5
        with locks.hold("nightly", ttl=3) as lease:
            assert lease.ttl == 3


def test_the_store_is_swept_while_something_is_held(stage: Stage) -> None:
    locks = stage.client(settings=replace(QUICK, sweep_every=0.1, renew_at=0.1))
    spy = Spy(locks)
    lease = stage.call(locks.acquire, "nightly", ttl=5)
    eventually(lambda: spy.count(Sweep) >= 2)
    lease.check()
    stage.call(lease.release)


def test_a_sweep_that_fails_costs_no_lease(stage: Stage) -> None:
    locks = stage.client(settings=replace(QUICK, sweep_every=0.1, renew_at=0.1))
    spy = Spy(locks)
    spy.fail(Sweep, lambda: RuntimeError("no"))
    lease = stage.call(locks.acquire, "nightly", ttl=5)
    eventually(lambda: spy.count(Sweep) >= 2 and spy.count(Renew) >= 2)
    lease.check()
    stage.call(lease.release)


def test_sweeping_can_be_switched_off(stage: Stage) -> None:
    locks = stage.client(settings=replace(QUICK, sweep_every=None, renew_at=0.1))
    spy = Spy(locks)
    lease = stage.call(locks.acquire, "nightly", ttl=4.0)
    eventually(lambda: spy.count(Renew) >= 3)
    assert spy.count(Sweep) == 0
    stage.call(lease.release)


def test_sweeping_by_hand_settles_what_is_over(stage: Stage) -> None:
    for n in range(5):
        stage.call(stage.locks.acquire, f"key-{n}", ttl=0.1, renew=False)
    eventually(lambda: all(view.state == "expired" for view in stage.everything()))
    swept = stage.call(stage.locks.sweep, limit=2)
    assert swept.expired == 5
    stage.nothing_left()


@pytest.mark.parametrize("history", ["none", "notable", "all"])
def test_the_history_tells_what_its_level_promises(stage: Stage, history: str) -> None:
    locks = stage.client(settings=QUICK, history=history)
    stage.call(stage.call(locks.acquire, "nightly").release)
    _lease = stage.call(locks.acquire, "nightly")
    stage.call(locks.break_lock, "nightly", reason="stuck", by="olga")
    kinds = [event.kind for event in stage.call(locks.history, "nightly")]
    assert kinds == (["granted", "released", "granted", "broken"] if history == "all" else ["broken"])
    assert [event.reason for event in stage.call(locks.history, "nightly", limit=1)] == ["stuck"]


def test_listing_filters_by_prefix_owner_type_and_state(stage: Stage) -> None:
    _leases = [
        stage.call(stage.locks.acquire, key, owner="ann" if key.startswith("w") else "bob")
        for key in ("workflow:1", "workflow:2", "resource:db:a", "plain")
    ]
    stage.call(stage.locks.break_lock, "workflow:2", reason="over")

    def keys(**options: Any) -> list[str]:
        async def collect() -> list[str]:
            return [view.key async for view in stage.locks.list(**options)]

        def plain() -> list[str]:
            return [view.key for view in stage.locks.list(**options)]

        return stage.call(collect if stage.is_async else plain)  # type: ignore[no-any-return]

    assert keys() == ["plain", "resource:db:a", "workflow:1", "workflow:2"]
    assert keys(prefix="workflow:") == ["workflow:1", "workflow:2"]
    assert keys(owner="bob") == ["plain", "resource:db:a"]
    assert keys(type="workflow", state="held") == ["workflow:1"]
    assert keys(state="free") == ["workflow:2"]
    assert keys(prefix="nothing") == []


def test_listing_goes_through_all_pages(stage: Stage) -> None:
    for n in range(250):
        stage.call(stage.locks.acquire, f"key-{n:03}")
    assert [view.key for view in stage.everything()] == [f"key-{n:03}" for n in range(250)]
