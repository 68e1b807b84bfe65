"""Machines whose clocks are hours apart: the server's clock decides, and they behave as one fleet."""

from __future__ import annotations

import pytest

from tests.faults.fleets import Fleet
from tests.faults.processes import SLACK, House, Worker
from tests.servers.binaries import faketime


def worker_at(house: House, offset: str) -> Worker:
    """Start a process whose wall clock is off. Its monotonic clocks are right, as on every machine."""
    library = faketime()
    if library is None:
        pytest.skip("missing: libfaketime, from the package libfaketime")
    return house.worker(
        LD_PRELOAD=str(library), FAKETIME=offset, FAKETIME_DONT_FAKE_MONOTONIC="1", FAKETIME_NO_CACHE="1"
    )


def test_clocks_that_are_an_hour_apart_make_one_fleet(server_house: House) -> None:
    workers = [worker_at(server_house, offset) for offset in ("+1h", "-1h", "+7d", "+0")]
    times = [float(worker.do("_ = time.time()")) for worker in workers]
    assert times[0] - times[1] > 7000  # else the clocks were not changed, and this shows nothing
    fleet = Fleet(server_house, workers)
    assert fleet.check() > 50


@pytest.mark.parametrize("offset", ["+1h", "-1h"])
def test_the_lease_of_a_dead_client_lasts_its_ttl_whatever_its_clock_said(
    server_house: House, offset: str
) -> None:
    off, right = worker_at(server_house, offset), server_house.worker()
    first = off.acquire(ttl=4)
    assert 0 < (server_house.look().expires_in or 0) <= 4
    assert right.do("_ = locks.try_acquire('nightly')") is None
    off.kill()
    assert right.acquire(ttl=60) > first
    # And the other way round: whoever is an hour ahead takes nobody's lease.
    late = worker_at(server_house, offset)
    assert late.do("_ = locks.try_acquire('nightly')") is None
    right.do("lease.check(); lease.release()")
    assert late.acquire(timeout=SLACK) > first
