"""Forks: the child owns nothing of its parent's, harms nothing of it, and is a client of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.faults.processes import PATIENCE, House

# Runs a function in a forked child, and returns what it printed: one line of JSON, or its traceback.
FORK = f"""
    def in_child(function):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                signal.alarm({int(PATIENCE)})
                os.write(write, json.dumps(function(), default=str).encode())
            except BaseException:
                os.write(write, traceback.format_exc().encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            text = answer.read()
        os.waitpid(pid, 0)
        try:
            return json.loads(text)
        except ValueError:
            raise RuntimeError(text or "the child said nothing") from None

    def name_of(function):
        try:
            function()
        except BaseException as error:
            return f"{{type(error).__name__}}: {{error}}"
        return None
"""


def test_the_child_owns_nothing(house: House) -> None:
    parent = house.worker()
    parent.do(FORK)
    token = parent.acquire(ttl=60)
    told = parent.do(
        """
        def child():
            errors = [name_of(lease.check), name_of(lease.release)]
            return [lease.held, lease.remaining, lease.lost.is_set(), *errors, str(lease)]

        _ = in_child(child)
        """
    )
    held, remaining, lost, checked, released, shown = told
    assert (held, remaining, lost) == (False, 0.0, True)
    for text in (checked, released):
        assert text.startswith("LeaseLost")
        assert "forked" in text
        assert f"process {parent.pid} holds it, not its child" in text
    assert "forked" in shown
    assert house.look().token == token
    parent.do("lease.check(); lease.release()")


def test_the_child_is_somebody_else(house: House) -> None:
    parent = house.worker()
    parent.do(FORK)
    parent.acquire(ttl=60)
    mine = parent.do("_ = [locks.instance, lease.owner, os.getpid()]")
    told = parent.do(
        """
        def child():
            entered = locks.try_acquire("nightly")
            own = locks.acquire("another", timeout=5)
            view = locks.inspect("another")
            own.release()
            return [locks.instance, own.owner, view.holder.pid, os.getpid(), entered]

        _ = in_child(child)
        """
    )
    instance, owner, shown_pid, pid, entered = told
    assert entered is None, "the child re-entered the lock of its parent"
    assert instance != mine[0]
    assert owner != mine[1]
    assert shown_pid == pid != mine[2]
    parent.do("lease.check(); lease.release()")


@pytest.mark.parametrize("way", ["return", "sys.exit(3)", "raise KeyError", "os._exit(3)"])
def test_leaving_a_block_in_the_child_leaves_the_parents_lock_alone(house: House, way: str) -> None:
    """The child leaves the block it was forked in, and its interpreter ends: neither releases anything."""
    parent = house.worker()
    token = parent.do(
        f"""
        def work():
            with locks.hold("nightly", ttl=60) as lease:
                pid = os.fork()
                if pid == 0:
                    sys.stderr = open(os.devnull, "w")
                    try:
                        {way if way != "return" else "pass"}
                    finally:
                        lease_in_child = lease
                else:
                    os.waitpid(pid, 0)
                    lease.check()
                    return lease.token
            if os.getpid() != parent_pid:
                os._exit(0)

        parent_pid = os.getpid()
        try:
            _ = work()
        except BaseException:
            if os.getpid() != parent_pid:
                import atexit
                atexit._run_exitfuncs()
                os._exit(0)
            raise
        """
    )
    assert token == house.look().token
    assert house.look().state == "free"


def test_a_lease_that_is_being_released_is_not_the_childs_either(house: House) -> None:
    """Nobody keeps it any more; so nobody tells the child that it is lost."""
    parent = house.worker()
    parent.do(FORK)
    parent.do(
        """
        from holdfast.core.requests import Release, Withdraw

        def failing(request, execute=locks._engine.store.execute):
            if isinstance(request, Release | Withdraw):
                raise StoreUnavailable("away")
            return execute(request)

        lease = locks.acquire("nightly", ttl=60, owner="me")
        locks._engine.store.execute = failing
        try:
            lease.release()
        except StoreUnavailable:
            pass
        """
    )
    told = parent.do(
        """
        def child():
            held = lease.held
            try:
                lease.release()
            except LeaseLost as error:
                return [held, error.reason]
            return [held, "released"]

        _ = in_child(child)
        """
    )
    assert told == [False, "forked"]
    assert house.look().state == "held"
    parent.do("del locks._engine.store.execute; lease.release()")
    assert house.look().state == "free"


def test_the_end_of_a_forked_interpreter_releases_nothing_of_the_parents(house: House) -> None:
    parent = house.worker()
    token = parent.acquire(ttl=60)
    parent.do(
        """
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            sys.exit(0)
        _ = os.waitpid(pid, 0)[1]
        """
    )
    view = house.look()
    assert (view.state, view.token) == ("held", token)
    parent.do("lease.check(); lease.release()")


def test_what_the_child_holds_outlives_a_parent_that_closes(house: House) -> None:
    """SQLite's locks belong to a process. A connection that lived through a fork let the parent delete the
    log in which the child went on writing: two holders of one lock.
    """
    parent, other = house.workers(2)
    house.locks.close()  # nobody else may keep the log alive
    other.do("locks.close()")
    parent.do("with locks.hold('warm'): pass")
    parent.do(
        """
        to_child, from_child = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                before = locks.acquire("before", ttl=60)
                os.write(from_child[1], b"1")
                os.read(to_child[0], 1)
                after = locks.acquire("after", ttl=60)
                os.write(from_child[1], b"2")
                os.read(to_child[0], 1)
                before.check(), after.check()
            finally:
                os._exit(0)
        os.read(from_child[0], 1)
        locks.close()
        os.write(to_child[1], b"1")
        os.read(from_child[0], 1)
        """
    )
    taken = other.do("locks = Holdfast(url); _ = [locks.try_acquire(key) for key in ('before', 'after')]")
    parent.do("os.write(to_child[1], b'2'); os.waitpid(pid, 0)")
    assert taken == [None, None]


def test_forking_in_the_middle_of_the_work_of_other_threads(house: House) -> None:
    """Whatever mutex or file lock a thread has at that moment, the child must be able to work."""
    parent = house.worker()
    parent.do(FORK)
    took = parent.do(
        """
        going = True

        def traffic(n):
            while going:
                with locks.hold(f"key-{n}"), locks.hold(f"key-{n}"):
                    pass

        threads = [threading.Thread(target=traffic, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()

        def child():
            with locks.hold("nightly", timeout=20):
                return locks.inspect("nightly").state

        _ = []
        for _n in range(20):
            time.sleep(0.002)
            _.append(in_child(child))
        going = False
        for thread in threads:
            thread.join()
        """
    )
    assert took == ["held"] * 20
    assert all(view.state == "free" for view in house.locks.list())


def test_forking_while_a_thread_waits_and_another_holds(house: House) -> None:
    """The parent's waiter is served by the parent, and by nobody in the child."""
    parent = house.worker()
    parent.do(FORK)
    parent.acquire(ttl=60)
    parent.do("got = []")
    waits = "lambda: got.append(locks.acquire('nightly', ttl=60))"  # kept: what nobody has is given back
    parent.do(f"waiter = threading.Thread(target={waits}); waiter.start()")
    house.until_waiting(1)
    assert (
        parent.do(
            """
        def child():
            return [len(locks._engine.mailboxes), repr(locks), [t.name for t in threading.enumerate()]]

        _ = in_child(child)
        """
        )[0]
        == 0
    )
    assert house.look().waiting == 1
    parent.do("lease.release(); waiter.join()")
    assert house.look().state == "held"


def test_a_client_in_memory_is_forked_into_an_empty_world(house: House) -> None:
    """Its mutexes may be held by threads that are not there; clients of one name still share one world."""
    parent = house.worker()
    parent.do(FORK)
    told = parent.do(
        """
        one, two = Holdfast("memory://shared"), Holdfast("memory://shared")
        mine = one.acquire("nightly", owner="me")
        going = True

        def traffic(n):
            while going:
                with one.hold(f"key-{n}"):
                    pass

        threads = [threading.Thread(target=traffic, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()

        def child():
            lease = one.acquire("nightly", timeout=0, owner="child")
            three = Holdfast("memory://shared")
            shared = [client.try_acquire("nightly", owner="x") for client in (two, three)]
            for n in range(64):
                with two.hold(f"key-{n}", timeout=0):
                    pass
            return [lease.held, shared, mine.held]

        _ = [in_child(child) for _n in range(10)]
        going = False
        for thread in threads:
            thread.join()
        mine.check()
        """
    )
    assert told == [[True, [None, None], False]] * 10


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_count_together(house: House, method: str) -> None:
    script = house.folder / "count.py"
    counter = house.folder / "counter"
    counter.write_text("0")
    script.write_text(
        f"""
import multiprocessing, sys
from pathlib import Path
from holdfast import Holdfast

locks = Holdfast({house.url!r})
counter = Path({str(counter)!r})

def work(n):
    for _ in range(5):
        with locks.hold("counter", timeout=60):
            counter.write_text(str(int(counter.read_text()) + 1))

if __name__ == "__main__":
    with locks.hold("mine"):
        context = multiprocessing.get_context({method!r})
        children = [context.Process(target=work, args=(n,)) for n in range(4)]
        for child in children:
            child.start()
        work(0)
        for child in children:
            child.join()
            assert child.exitcode == 0, child.exitcode
"""
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=PATIENCE * 2)
    assert done.returncode == 0, done.stderr
    assert int(counter.read_text()) == 25
    assert house.look("mine").state == "free"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_multiprocessing_gives_back_what_it_forgot(house: House, method: str) -> None:
    script = house.folder / "forget.py"
    script.write_text(
        f"""
import multiprocessing
from holdfast import Holdfast

locks = Holdfast({house.url!r})

def forget():
    global lease
    lease = locks.acquire("forgotten", ttl=600)

if __name__ == "__main__":
    child = multiprocessing.get_context({method!r}).Process(target=forget)
    child.start()
    child.join()
    assert child.exitcode == 0
"""
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert house.look("forgotten").state == "free"


def test_a_task_that_forks_keeps_its_lease(house: House) -> None:
    worker = house.worker()
    worker.do(
        """
        async def work():
            async with AsyncHoldfast(url) as async_locks:
                async with async_locks.hold("nightly", ttl=60) as lease:
                    pid = os.fork()
                    if pid == 0:
                        os._exit(0 if not lease.held else 1)
                    status = os.waitpid(pid, 0)[1]
                    lease.check()
                    return status

        _ = asyncio.run(work())
        assert _ == 0
        """
    )
    assert house.look().state == "free"


def test_our_own_process_can_fork_as_well(house: House) -> None:
    """The client that the tests look with: in the process of pytest, with threads of its own."""
    lease = house.locks.acquire("ours", ttl=60)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if not lease.held else 1)
    assert os.waitpid(pid, 0)[1] == 0
    lease.check()
    lease.release()


def test_a_lease_that_was_lost_before_is_not_released_by_the_child(house: House) -> None:
    parent = house.worker()
    parent.do(FORK)
    parent.do(
        """
        lease = locks.acquire("nightly", ttl=0.2, owner="me", renew=False)
        lease.lost.wait()
        again = locks.acquire("nightly", ttl=60, owner="me")
        """
    )
    told = parent.do(
        """
        from holdfast.core.requests import Release

        def child():
            asked = []
            store = locks._engine.store
            execute = store.execute
            store.execute = lambda request: asked.append(type(request).__name__) or execute(request)
            return [name_of(lease.release), asked]

        _ = in_child(child)
        """
    )
    error, asked = told
    assert error.startswith("LeaseLost")
    assert asked == []
    parent.do("again.check(); again.release()")
