"""The lock server killed, restarted and doubled under its clients: they go on, and none believes too much."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.core.requests import Signal
from tests.faults.fleets import violations
from tests.faults.processes import PATIENT, House, Worker, eventually
from tests.servers.balancer import Balancer
from tests.servers.lock_server import LockServer

PROCESSES = 4
CLIENTS = 50  # in each of them: 200 in all
KEYS = 20

# Each client has its own connections, its own keeper and its own stream of signals.
CROWD = f"""
    import random
    from holdfast.clock import boot_time

    going, records, failures, turns, broken = True, [], [], [0] * {CLIENTS}, []

    def excepthook(args):
        broken.append("".join(traceback.format_exception(args.exc_value)))

    threading.excepthook = excepthook

    def work(n):
        dice = random.Random(f"{{os.getpid()}} {{n}}")
        pause = threading.Event()
        with Holdfast(url, settings=locks.settings) as mine:
            while going:
                lease = mine.acquire(f"key-{{dice.randrange({KEYS})}}", ttl=4)
                since = boot_time()
                pause.wait(dice.random() * 0.01)
                until = min(boot_time(), lease._holding.kept.trusted_until)
                records.append([lease.key, lease.token, since, until, lease.owner])
                try:
                    lease.release()
                except (LeaseLost, StoreError) as error:
                    failures.append(str(error))
                turns[n] += 1
                pause.wait(dice.random() * 0.1)

    threads = [threading.Thread(target=work, args=(n,)) for n in range({CLIENTS})]
    for thread in threads:
        thread.start()
"""


@pytest.fixture
def server(store: str, tmp_path: Path) -> Iterator[LockServer]:
    """A server over every store."""
    with LockServer(store, tmp_path / "server.log", "--log-level", "warning") as server:
        yield server


@pytest.fixture
def house(server: LockServer, tmp_path: Path) -> Iterator[House]:
    """Processes that know the server only."""
    house = House(server.url, tmp_path)
    yield house
    house.close()


def turns_of(workers: list[Worker]) -> list[int]:
    found = []
    for worker in workers:
        turns, broken = worker.do("_ = [turns, broken]")
        assert not broken, broken[0]
        found += turns
    return found


def until_all_had_turns(workers: list[Worker]) -> None:
    """Wait until each of the clients has had a turn that began after this moment."""
    before = turns_of(workers)
    eventually(
        lambda: all(now >= then + 2 for then, now in zip(before, turns_of(workers), strict=True)),
        within=120.0,
    )


@pytest.mark.full
def test_200_clients_go_on_when_their_server_is_killed_and_started_again(
    house: House, server: LockServer
) -> None:
    """P1, P2, P3, P6: whatever answers were lost, no token regresses, and no two leases are valid at once."""
    workers = house.workers(PROCESSES)
    for worker in workers:
        worker.do(CROWD)
    until_all_had_turns(workers)
    for _ in range(2):
        server.kill()
        server.start()
        until_all_had_turns(workers)
    for worker in workers:
        worker.do("going = False")
    for worker in workers:
        worker.do("[thread.join() for thread in threads]")
    records = [tuple(record) for worker in workers for record in worker.do("_ = records")]
    assert not (wrong := violations(records)), "\n".join(wrong[:20])
    assert len(records) >= 3 * PROCESSES * CLIENTS


def test_places_in_a_queue_outlive_the_server(house: House, server: LockServer) -> None:
    """P7: tickets are in the store; who comes back with the same attempt is where it was."""
    holder, *waiters = house.workers(6, settings=PATIENT)  # a server may take its time to start
    holder.acquire("nightly", ttl=60)
    for place, waiter in enumerate(waiters, 1):
        waiter.queue("nightly", ttl=60)
        house.until_waiting(place)
    server.kill()
    server.start()
    tokens = []
    for worker, successor in zip([holder, *waiters[:-1]], waiters, strict=True):
        worker.release()
        tokens.append(successor.answer())
        assert not any(each.answered() for each in waiters if each is not successor)
    assert tokens == sorted(tokens)


def test_a_lease_outlives_the_server(house: House, server: LockServer) -> None:
    """Its holder goes on renewing with whoever answers at the same address."""
    worker = house.worker()
    token = worker.acquire("nightly", ttl=30)
    server.kill()
    server.start()
    worker.do("lease.check()")

    def ends_at() -> float:
        return time.monotonic() + house.look().expires_in

    before = ends_at()
    eventually(lambda: ends_at() > before + 1.0)  # it was renewed
    assert house.look().token == token
    worker.release()


def test_a_waiter_is_woken_by_a_release_through_another_server(postgres_locks: str, tmp_path: Path) -> None:
    """Stateless: two servers on one database, behind a balancer that spreads connections as they come."""
    log = "--log-level", "warning"
    with (
        LockServer(postgres_locks, tmp_path / "one.log", *log) as one,
        LockServer(postgres_locks, tmp_path / "two.log", *log) as two,
        Holdfast(one.url) as holder,
        Holdfast(two.url) as waiter,
    ):
        hand_over(holder, waiter)
        with (
            Balancer(one.port, two.port) as balancer,
            Holdfast(balancer.url) as ann,
            Holdfast(balancer.url) as bob,
        ):
            for _ in range(10):
                hand_over(ann, bob)
                hand_over(bob, ann)
            assert min(balancer.served.values()) > 0


def hand_over(holder: Holdfast, waiter: Holdfast) -> None:
    """Hand a lock over, and see that a signal tells the waiter, though a heartbeat may come before it."""
    key = f"nightly-{os.urandom(4).hex()}"  # so that no signal of the last time is taken for one of now
    signals: list[Signal] = []
    tell = waiter._engine.on_signal
    waiter._engine.store.listen(lambda signal: (signals.append(signal), tell(signal)))
    tokens: list[int] = []

    def wait() -> None:
        with waiter.hold(key, timeout=30) as lease:
            tokens.append(lease.token)

    with holder.hold(key) as lease:
        thread = threading.Thread(target=wait)
        thread.start()
        eventually(lambda: (view := holder.inspect(key)) and view.waiting == 1)
    thread.join()
    assert tokens > [lease.token]
    told = eventually(lambda: [signal.kind for signal in list(signals) if signal.key == key])
    assert set(told) == {"granted"}
