"""Processes that die or stand still: what it costs the others, and what the late ones can still do."""

from __future__ import annotations

import os
import socket

import pytest

from tests.faults.processes import PATIENCE, PATIENT, SLACK, TTL, Failed, House, eventually


def test_a_killed_holder_costs_its_ttl_and_the_next_token_is_higher(house: House) -> None:
    holder, waiter = house.workers(2)
    first = holder.acquire()
    waiter.queue(ttl=60)
    house.until_waiting(1)
    holder.kill()
    assert waiter.answer() > first
    waiter.do("lease.check(); lease.release()")
    assert house.look().state == "free"


def test_a_killed_holder_is_taken_over_by_whoever_comes_after_its_ttl(house: House) -> None:
    holder, other = house.workers(2)
    first = holder.acquire(ttl=0.5)
    holder.kill()
    assert other.acquire(timeout=SLACK) > first


def test_a_killed_waiter_at_the_head_costs_a_claim_window(house: House) -> None:
    holder, head, second = house.workers(3)
    holder.acquire(ttl=60)
    head.queue(ttl=600)  # which it would cost if it had claimed
    house.until_waiting(1)
    second.queue(ttl=60)
    house.until_waiting(2)
    head.kill()
    holder.release()
    second.answer()
    second.do("lease.check(); lease.release()")


def test_a_waiter_that_died_long_ago_costs_nothing(house: House) -> None:
    """Its ticket has ended with its patience: the next one is head, and is handed the lock."""
    holder, head, second = house.workers(3)
    holder.acquire(ttl=60)
    head.queue()
    house.until_waiting(1)
    second.queue()
    house.until_waiting(2)
    head.kill()
    house.until_waiting(1)  # the heartbeats of the second settle it
    holder.release()
    assert house.look().holder.pid == second.pid  # type: ignore[union-attr]
    second.answer()


def test_a_winner_killed_before_it_claims_costs_the_claim_window(house: House) -> None:
    holder, winner, second = house.workers(3, settings="Settings(heartbeat=0.3, claim=5.0, patience=10.0)")
    first = holder.acquire(ttl=60)
    winner.queue(ttl=600)  # which it would cost if it had claimed
    house.until_waiting(1)
    second.queue()
    house.until_waiting(2)
    winner.stop()
    holder.release()
    view = house.look()
    assert view.holder is not None
    assert (view.holder.pid, view.holder.claimed) == (winner.pid, False)
    assert view.token > first
    winner.kill()
    assert second.answer() > view.token


def test_a_winner_that_stands_still_too_long_joins_at_the_tail(house: House) -> None:
    holder, winner, second = house.workers(3)
    holder.acquire(ttl=60)
    winner.queue(ttl=60)
    house.until_waiting(1)
    second.queue(ttl=60)
    house.until_waiting(2)
    winner.stop()
    holder.release()
    second_token = second.answer()
    winner.go_on()
    house.until_waiting(1)
    assert not winner.answered()
    assert house.look().token == second_token
    second.release()
    assert winner.answer() > second_token
    winner.do("lease.check(); lease.release()")


def test_a_waiter_that_stands_still_for_a_moment_keeps_its_place(house: House) -> None:
    holder, head, second = house.workers(3, settings=PATIENT)
    holder.acquire(ttl=60)
    head.queue(ttl=60)
    house.until_waiting(1)
    second.queue(ttl=60)
    house.until_waiting(2)
    head.stop()
    holder.release()
    head.go_on()  # well within its claim window
    head_token = head.answer()
    assert not second.answered()
    head.release()
    assert second.answer() > head_token


def test_a_holder_that_stood_still_past_its_ttl_knows_it_and_can_change_nothing(house: House) -> None:
    """P3 and P5: the clock that tells it so has run on, and its release is about its own lease only."""
    sleeper, other = house.workers(2)
    first = sleeper.acquire()
    sleeper.do("lease.check()")
    sleeper.stop()
    other.queue(ttl=60)
    second = other.answer()
    assert second > first
    sleeper.go_on()
    with pytest.raises(Failed) as caught:
        sleeper.do("lease.check()")
    assert caught.value.error == "LeaseLost"
    assert sleeper.do("_ = (lease.held, lease.remaining, lease.lost.is_set())") == [False, 0.0, True]
    with pytest.raises(Failed) as caught:
        sleeper.release()
    assert caught.value.error == "LeaseLost"
    other.do("lease.check()")
    view = house.look()
    assert (view.state, view.token) == ("held", second)
    sleeper.queue()  # and it may ask again like everybody else
    house.until_waiting(1)
    other.release()
    assert sleeper.answer() > second


def test_a_holder_that_stood_still_inside_its_block_is_told_on_leaving_it(house: House) -> None:
    sleeper, other = house.workers(2)
    sleeper.do(
        f"""
        def work():
            with locks.hold("nightly", ttl={TTL}):
                answer(ok="inside")
                sys.stdin.readline()
        """
    )
    sleeper.begin("work()")
    assert sleeper.answer() == "inside"
    sleeper.stop()
    token = other.acquire(ttl=60)
    sleeper.go_on()
    sleeper.begin("pass")
    with pytest.raises(Failed) as caught:
        sleeper.answer()
    assert caught.value.error == "LeaseLost"
    assert house.look().token == token


def test_a_task_that_stood_still_inside_its_block_is_cancelled_and_told(house: House) -> None:
    sleeper, other = house.workers(2)
    sleeper.do(
        f"""
        async def work():
            async with AsyncHoldfast(url) as async_locks:
                async with async_locks.hold("nightly", ttl={TTL}):
                    answer(ok="inside")
                    await asyncio.sleep({SLACK + TTL} * 10)
        """
    )
    sleeper.begin("asyncio.run(work())")
    assert sleeper.answer() == "inside"
    sleeper.stop()
    token = other.acquire(ttl=60)
    sleeper.go_on()
    with pytest.raises(Failed) as caught:
        sleeper.answer()
    assert caught.value.error == "LeaseLost"
    assert house.look().token == token


def test_everybody_is_killed_but_one(house: House) -> None:
    workers = house.workers(6)
    workers[0].acquire()
    for n, worker in enumerate(workers[1:], 1):
        worker.queue()
        house.until_waiting(n)
    for worker in workers[:-1]:
        worker.kill()
    workers[-1].answer()
    house.locks.sweep()
    assert house.look().waiting == 0


def test_a_lost_signal_costs_a_heartbeat(file_house: House) -> None:
    """Somebody removes the doorbells while a process waits: it is served a heartbeat later."""
    holder, waiter = file_house.workers(2)
    holder.acquire(ttl=600)
    waiter.queue(ttl=600)
    file_house.until_waiting(1)
    for name in file_house.bells():
        (file_house.path.with_name("locks.db-bells") / name).unlink()
    file_house.path.with_name("locks.db-bells").rmdir()
    holder.release()
    waiter.answer()
    waiter.release()
    assert waiter.end() == 0


def test_the_doorbells_of_the_dead_are_removed(file_house: House) -> None:
    """By whoever rings in vain, and by sweeping."""
    one, two, three = file_house.workers(3)
    one.acquire(ttl=60)
    for n, worker in enumerate((two, three), 1):
        worker.queue()
        file_house.until_waiting(n)
    eventually(lambda: len(file_house.bells()) == 3)
    two.kill()
    one.release()  # rings at the door of the dead
    three.answer()
    eventually(lambda: len(file_house.bells()) == 2)
    three.kill()
    one.kill()
    file_house.locks.sweep()
    assert file_house.bells() == set()


def test_a_doorbell_that_is_rung_by_strangers_goes_on_ringing(file_house: House) -> None:
    holder, waiter = file_house.workers(2)
    holder.acquire(ttl=600)
    waiter.do("locks.settings.heartbeat")
    waiter.queue(ttl=600)
    file_house.until_waiting(1)
    eventually(lambda: len(file_house.bells()) == 2)
    folder = os.open(file_house.path.with_name("locks.db-bells"), os.O_RDONLY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        for name in file_house.bells():
            for noise in (b"", b"x" * 4000, b"\xff", b"a\nb", b"granted\n\n\nsoon", b"lost\n1\n2\nnan"):
                stranger.sendto(noise, f"/proc/self/fd/{folder}/{name}")
    os.close(folder)
    holder.release()
    waiter.answer()
    assert waiter.do("_ = sorted(t.name for t in threading.enumerate())").count("holdfast-doorbell") == 1


@pytest.mark.parametrize("moment", ["_lock", "commit"])
def test_a_client_that_stands_still_in_a_transaction_holds_nobody_up_for_long(
    server_house: House, moment: str
) -> None:
    """It has the row of the lock, and a server gives it a few seconds. What it had begun is undone."""
    house = server_house
    sleeper, other = house.workers(2)
    first = sleeper.acquire(owner="sleeper")
    sleeper.do(
        f"""
        from holdfast.stores.sql.transactions.session import Transaction

        original = Transaction.{moment}

        def stand_still(self, *args, **options):
            Transaction.{moment} = original
            before = {moment == "_lock"} and original(self, *args, **options)
            os.kill(os.getpid(), signal.SIGSTOP)
            return before or original(self, *args, **options)

        Transaction.{moment} = stand_still
        """
    )
    sleeper.queue(ttl=600, owner="sleeper")  # to enter again
    sleeper.until_stopped()
    second = other.acquire(timeout=PATIENCE)
    assert second > first
    sleeper.go_on()
    house.until_waiting(1)  # like everybody else
    other.release()
    assert sleeper.answer() > second
