"""Processes that enter by a hand-over, and what happens to them then."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.faults.conftest import fresh
from tests.faults.processes import SLACK, House, Worker, eventually

# A claim window that a busy machine does not miss, and one that a test can wait for.
CALM = "Settings(heartbeat=5.0, claim=20.0, patience=60.0)"
CLAIM = 4.0
SHORT = f"Settings(heartbeat=1.0, claim={CLAIM}, patience=60.0)"
TTL = 60.0
SOON = 12.0  # seconds of a lease that may have been claimed by then: on a busy machine

# The thread of a keeper that has just begun asks about everything once.
WARM_UP = """
    from holdfast.client.keeper_thread import AWAKE
    locks.acquire("warm-up").release()
    keeper = locks._engine.keeper
    def sleeps():
        with keeper._mutex:
            return keeper._thread is not None and keeper._wake_at > AWAKE
    while not sleeps():
        time.sleep(0.01)
"""

SPY = """
    seen = []
    execute = locks._engine.store.execute

    def spied(request):
        seen.append(type(request).__name__)
        return execute(request)

    locks._engine.store.execute = spied
"""


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the winner is told its token, in whatever process it is."""
    return fresh(request, request.param, tmp_path)


def won(house: House, settings: str, ttl: float = TTL) -> Worker:
    """Return a process to which another one has handed the lock, and that has entered."""
    holder, winner = house.workers(2, settings=settings)
    winner.do(WARM_UP)
    winner.do(SPY)
    holder.acquire(ttl=TTL)
    winner.queue(ttl=ttl)
    house.until_waiting(1)
    winner.until_asleep()
    holder.release()
    winner.answer()
    return winner


def requests(worker: Worker) -> int:
    """Return how often a process has asked for a lock."""
    return int(worker.do("_ = seen.count('Acquire')"))


def test_a_winner_in_another_process_enters_without_a_second_request(house: House) -> None:
    winner = won(house, CALM)
    assert winner.do("_ = lease.held")
    view = house.look()
    assert view.holder is not None
    assert (view.token, view.holder.claimed) == (winner.do("_ = lease.token"), False)
    winner.release()
    assert requests(winner) == 1
    assert house.look().state == "free"


def test_its_keeper_claims_it_and_goes_on_renewing(house: House) -> None:
    winner = won(house, SHORT)

    def is_claimed() -> bool:
        holder = house.look().holder
        return holder is not None and holder.claimed

    eventually(is_claimed)
    assert requests(winner) == 1
    time.sleep(CLAIM)
    assert winner.do("_ = lease.held")


def test_a_break_is_noticed_by_who_has_entered(house: House) -> None:
    winner = won(house, SHORT)
    assert house.locks.break_lock("nightly", reason="stuck")
    eventually(lambda: not winner.do("_ = lease.held"))


def stopped_before_it_claims(house: House) -> Worker:
    """Return a winner that has entered and is stopped, before its keeper has claimed the lease.

    On a busy machine the keeper may be faster than we are. Then it is tried with other processes.
    """
    for _ in range(5):
        winner = won(house, SHORT)
        winner.stop()
        if not (holder := house.look().holder) or not holder.claimed:
            return winner
        winner.kill()
        assert house.locks.break_lock("nightly", reason="once more")
    raise AssertionError("its keeper was always faster")


def test_a_winner_that_is_killed_when_it_has_entered_costs_the_claim_window(house: House) -> None:
    winner = stopped_before_it_claims(house)
    winner.kill()
    next_one = house.worker(settings=SHORT)
    began = time.monotonic()
    assert next_one.acquire(ttl=TTL)
    assert time.monotonic() - began < CLAIM + SLACK < TTL


def test_a_winner_that_was_stopped_past_its_claim_window_does_not_enter(house: House) -> None:
    """It was handed the lock while it slept. Then it wakes up, hears of it, and another has the lock."""
    holder, winner, third = house.workers(3, settings=SHORT)
    first = holder.acquire(ttl=TTL)
    winner.queue(ttl=TTL)
    house.until_waiting(1)
    winner.until_asleep()
    winner.stop()
    third.queue(ttl=TTL)
    house.until_waiting(2)
    holder.release()
    handed = house.look().token
    assert handed > first
    token = third.answer()  # after the claim window
    assert token > handed
    winner.go_on()
    house.until_waiting(1)  # with a new attempt
    assert not winner.answered()
    third.release()
    assert winner.answer() > token


def test_a_winner_that_is_stopped_when_it_has_entered_does_not_trust_it_later(house: House) -> None:
    winner = won(house, SHORT, ttl=SOON)
    token = winner.do("_ = lease.token")
    winner.stop()
    third = house.worker(settings=SHORT)
    assert third.acquire(ttl=TTL) > token
    winner.go_on()
    assert not winner.do("_ = lease.held")


FORK = """
    held = []

    def wait():
        held.append(locks.acquire("nightly", ttl=60.0))

    thread = threading.Thread(target=wait)
    thread.start()
    while not locks._engine.keeper.tickets():
        time.sleep(0.01)
    there, here = os.pipe()
    ask, told = os.pipe()
    if (child := os.fork()) == 0:
        os.read(ask, 1)
        kept = len(locks._engine.keeper.kept()) + len(held)
        os.write(here, str(kept).encode())
        os._exit(0)
"""


def test_who_forks_while_it_waits_enters_and_its_child_does_not(house: House) -> None:
    holder, winner = house.workers(2, settings=CALM)
    winner.do(SPY)
    holder.acquire(ttl=TTL)
    winner.do(FORK)
    house.until_waiting(1)
    holder.release()
    assert winner.do("thread.join(); _ = held[0].held")
    assert requests(winner) == 1
    assert winner.do("os.write(told, b'!'); _ = os.read(there, 9).decode()") == "0"
    winner.do("os.waitpid(child, 0); held[0].release()")
    assert house.look().state == "free"
