# ruff: noqa: ASYNC110, PT012
"""Instances and work while answers are lost, tasks are cancelled, and processes fork and end."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    AsyncHoldfast,
    Holdfast,
    LeaseLost,
    NotHeld,
    OutcomeUnknown,
    Settings,
    StoreUnavailable,
)
from holdfast.core.cluster import Assign, Claim, Finish, Heartbeat, Join
from holdfast.core.requests import Request
from tests.clients.cluster import MORTAL, instance_view, next_of, states
from tests.clients.conftest import STORES
from tests.clients.support import PATIENCE, QUICK, Spy, Stage, eventually

IMPATIENT = Settings(release_timeout=0.2)


class Deaf(Spy):
    """Has the store do what it is asked, and then loses the answers to some of it."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.lost: list[type] = []

    def execute(self, request: Request[Any]) -> Any:
        answer = super().execute(request)
        if type(request) in self.lost:
            self.lost.remove(type(request))
            raise OutcomeUnknown("the answer is lost")
        return answer


# Lost answers.


def test_a_lost_answer_to_an_assignment_is_asked_for_again(stage: Stage) -> None:
    instance = stage.call(stage.locks.join)
    deaf = Deaf(stage.locks)
    deaf.lost = [Assign, Assign]
    work = stage.call(instance.assign, "workflow:1")
    assert deaf.count(Assign) == 3
    assert work.tries == 1
    work.check()
    deaf.lost = [Finish]
    stage.call(work.complete, 7)
    assert stage.call(stage.locks.work, "workflow:1").result == 7


def test_a_lost_answer_to_a_claim_is_asked_for_again(stage: Stage) -> None:
    stage.call(stage.locks.offer, [f"workflow:{n}" for n in range(3)])
    instance = stage.call(stage.locks.join)
    deaf = Deaf(stage.locks)
    deaf.lost = [Claim]
    claimed = stage.call(instance.claim, "workflow", limit=2)
    assert [work.key for work in claimed] == ["workflow:0", "workflow:1"]
    assert {request.number for request in deaf.seen if isinstance(request, Claim)} == {1}
    for work in claimed:
        stage.call(work.complete)


def test_a_claim_that_was_given_up_is_found_again_by_the_next(stage: Stage) -> None:
    stage.call(stage.locks.offer, [f"workflow:{n}" for n in range(3)] + ["job:1"])
    client = stage.client(settings=IMPATIENT)
    instance = stage.call(client.join)
    deaf = Deaf(client)
    deaf.lost = [Claim] * 1000
    with pytest.raises(OutcomeUnknown):
        stage.call(instance.claim, "workflow", limit=2)
    assert instance.assignments == ()
    deaf.lost = []
    assert stage.call(instance.claim, "job") == [], "what was found is not what is wanted now"
    assert set(states(stage).values()) == {"offered"}
    assert [work.key for work in stage.call(instance.claim, "job")] == ["job:1"]
    assert len(stage.call(instance.claim, "workflow")) == 3


def test_a_loop_goes_on_through_whatever_the_store_suffers(stage: Stage) -> None:
    stage.call(stage.locks.offer, ["workflow:1"])
    instance = stage.call(stage.locks.join)
    deaf = Deaf(stage.locks)
    deaf.lost = [Claim] * 4
    claims = instance.claims("workflow")
    assert next_of(stage.me, claims).key == "workflow:1"


def test_a_loop_that_may_not_wait_longer_says_what_is_wrong(stage: Stage) -> None:
    instance = stage.call(stage.locks.join)
    spy = Spy(stage.locks)
    spy.fail(Claim, lambda: StoreUnavailable("no route"))
    with pytest.raises(StoreUnavailable):
        next_of(stage.me, instance.claims("workflow", timeout=0.1))


def test_work_whose_end_could_not_be_told_may_be_ended_again(stage: Stage) -> None:
    client = stage.client(settings=IMPATIENT)
    instance = stage.call(client.join)
    work = stage.call(instance.assign, "workflow:1")
    spy = Spy(client)
    spy.fail(Finish, lambda: StoreUnavailable("no route"))
    with pytest.raises(StoreUnavailable):
        stage.call(work.complete, 7)
    work.check()
    spy.heal()
    stage.call(work.complete, 7)
    assert stage.call(stage.locks.work, "workflow:1").result == 7


def test_work_whose_end_is_never_told_is_lost_in_time(stage: Stage) -> None:
    """Nobody renews what its holder wanted to end."""
    client = stage.client(settings=IMPATIENT)
    instance = stage.call(client.join, capacity=1)
    work = stage.call(instance.assign, "workflow:1", ttl=1.0)
    spy = Spy(client)
    spy.fail(Finish, lambda: StoreUnavailable("no route"))
    with pytest.raises((StoreUnavailable, LeaseLost)):
        stage.call(work.complete, 7)
    eventually(work.lost.is_set)
    with pytest.raises(LeaseLost):
        stage.call(work.complete, 7)
    eventually(lambda: instance.assignments == ())
    spy.heal()
    eventually(lambda: stage.call(instance.claim, "workflow"))


def test_what_two_end_at_once_is_ended_once(stage: Stage) -> None:
    instance = stage.call(stage.locks.join)
    work = stage.call(instance.assign, "workflow:1")
    spy = Spy(stage.locks)
    both = threading.Barrier(2, timeout=PATIENCE)
    first: list[str] = []

    def meet(request: Request[Any]) -> None:
        if isinstance(request, Finish) and not stage.is_async and len(first) < 2:
            first.append("here")
            both.wait()

    spy.fault = meet  # type: ignore[assignment]
    futures = [stage.actor(name).start(work.complete) for name in ("one", "other")]
    errors = [future.exception(PATIENCE) for future in futures]
    assert sum(error is None for error in errors) == 1
    assert sum(isinstance(error, NotHeld | LeaseLost) for error in errors) == 1
    assert states(stage) == {"workflow:1": "completed"}


# Cancelled tasks.


def player(url: str) -> Callable[..., None]:
    """Return what plays a scenario with a client of its own; no instance and no work may be left after it."""

    def play(scenario: Callable[[AsyncHoldfast], Any], end: tuple[str, ...] = ("left",)) -> None:
        async def run() -> None:
            async with AsyncHoldfast(url, settings=QUICK) as locks:
                await asyncio.wait_for(scenario(locks), PATIENCE)
                assert not locks._engine.members
                assert {each.state for each in await locks.instances()} <= set(end)
                assert [view async for view in locks.works(state="assigned")] == []
                assert [view async for view in locks.list(state="held")] == []
            assert len(asyncio.all_tasks()) == 1

        asyncio.run(run())

    return play


@pytest.fixture
def play(url: str) -> Callable[..., None]:
    return player(url)


@pytest.fixture(params=STORES[1:])
def play_slowly(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """On stores that answer in another thread: only there a request can be cancelled while it is answered."""
    if request.param == "sqlite":
        return player(f"sqlite:///{tmp_path}/locks.db")
    return player(request.getfixturevalue(f"{request.param}_locks"))


class Slow:
    """Stands before a client's store: lets one kind of request through, and then waits with the answer."""

    def __init__(self, client: AsyncHoldfast, kind: type) -> None:
        self.asked = threading.Event()
        self._kind = kind
        self._execute = client._engine.store.execute
        self._go = threading.Event()
        client._engine.store.execute = self._slowly  # type: ignore[method-assign]

    def _slowly(self, request: Request[Any]) -> Any:
        answer = self._execute(request)
        if type(request) is self._kind and not self.asked.is_set():
            self.asked.set()
            assert self._go.wait(PATIENCE)
        return answer

    def go(self) -> None:
        self._go.set()


async def cancel_while(asked: Slow, waiting: asyncio.Task[Any]) -> None:
    while not asked.asked.is_set():
        await asyncio.sleep(0.001)
    waiting.cancel()
    await asyncio.sleep(0)
    asked.go()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_a_join_that_is_cancelled_has_left(play_slowly: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        slow = Slow(locks, Join)
        await cancel_while(slow, asyncio.ensure_future(locks.join()))

    play_slowly(scenario)


@pytest.mark.parametrize(("kind", "how"), [(Assign, "assign"), (Claim, "claim"), (Claim, "claims")])
def test_work_that_is_cancelled_while_it_is_asked_for_is_returned(
    play_slowly: Callable[..., None], kind: type, how: str
) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        await locks.offer(["workflow:1"])
        async with locks.join() as instance:
            asking = {
                "assign": lambda: instance.assign("workflow:1"),
                "claim": lambda: instance.claim("workflow"),
                "claims": lambda: instance.claims("workflow").__anext__(),
            }[how]
            await cancel_while(Slow(locks, kind), asyncio.ensure_future(asking()))
            assert instance.assignments == ()
            view = await locks.work("workflow:1")
            assert view is not None
            assert (view.state, view.tries) == ("offered", 0)

    play_slowly(scenario)


def test_a_loop_that_is_cancelled_while_it_waits_leaves_nothing(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        async with locks.join() as instance:
            waiting = asyncio.ensure_future(anext(instance.claims("workflow")))
            while not instance._workload.waiting or instance._workload.asker:
                await asyncio.sleep(0.001)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not instance._workload.waiting
            assert not locks._engine.mailboxes

    play(scenario)


@pytest.mark.parametrize(("how", "says"), [("drain", "drained"), ("leave", "instance left")])
def test_a_body_is_cancelled_when_its_work_is_lost(play: Callable[..., None], how: str, says: str) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        async with locks.join() as instance:
            losing: asyncio.Task[None] | None = None
            with pytest.raises(LeaseLost, match=says):
                async with await instance.assign("workflow:1"):
                    losing = asyncio.create_task(getattr(instance, how)())
                    await asyncio.sleep(PATIENCE)
            assert losing is not None
            await losing

    play(scenario)


def test_a_body_is_cancelled_when_its_instance_is_lost(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        spy = Spy(locks)
        instance = await locks.join(heartbeat=0.25, ttl=2.0)
        with pytest.raises(LeaseLost, match="instance lost"):
            async with await instance.assign("workflow:1", ttl=600):
                spy.fail(Heartbeat, lambda: StoreUnavailable("no route"))
                await asyncio.sleep(PATIENCE)
        while (view := await locks.work("workflow:1")) is None or view.state == "assigned":
            await asyncio.sleep(0.01)
        while (await locks.instances())[0].state == "alive":
            await asyncio.sleep(0.01)

    play(scenario, end=("left", "dead"))  # as its last request came in time, or not


def test_a_task_that_is_cancelled_returns_its_work(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        async with locks.join() as instance:

            async def body() -> None:
                async with await instance.assign("workflow:1"):
                    await asyncio.sleep(PATIENCE)

            task = asyncio.ensure_future(body())
            while not instance.assignments:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            view = await locks.work("workflow:1")
            assert view is not None
            assert (view.state, view.tries) == ("offered", 0)

    play(scenario)


# Forks and ends.


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


def run(code: str, file: str) -> subprocess.Popen[str]:
    begin = f"import os, signal, sys, threading\nfrom holdfast import *\nlocks = Holdfast({file!r})\n"
    return subprocess.Popen(
        [sys.executable, "-c", begin + textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_forked_child_is_no_member(file: str) -> None:
    code = """
        instance = locks.join()
        work = instance.assign("workflow:1")
        pid = os.fork()
        if pid == 0:
            seen = [instance.state, instance.lost.reason, len(instance.assignments), work.lost.is_set()]
            for call in (instance.check, work.check, work.complete, lambda: instance.claim("workflow")):
                try:
                    call()
                except HoldfastError as error:
                    seen.append(type(error).__name__)
            instance.leave()
            print(*seen, sep=chr(10), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        instance.check()
        work.complete("by the parent")
        print(instance.state, locks.instances()[0].state, locks.work("workflow:1").result)
        instance.leave()
    """
    process = run(code, file)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    state, reason, *rest, last = out.splitlines()
    assert (state, rest) == (
        "dead",
        ["0", "True", "InstanceLost", "LeaseLost", "LeaseLost", "InstanceLost"],
    )
    assert reason.startswith("forked: process ")
    assert last == "alive alive by the parent"


@pytest.mark.parametrize("how", ["exit", "sigterm", "sigterm while it waits", "sigint while it waits"])
def test_a_process_that_ends_leaves_and_returns_its_work(file: str, how: str) -> None:
    waits = "list(instance.claims('job'))" if "waits" in how else "sys.stdin.read()"
    process = run(
        f"""
        instance = locks.join()
        work = instance.assign("workflow:1")
        print("ready", flush=True)
        {waits}
        """,
        file,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    with Holdfast(file) as locks:
        (instance,) = locks.instances()
        assert instance.state == "alive"
        if how == "exit":
            process.communicate("", timeout=PATIENCE)
        else:
            os.kill(process.pid, signal.SIGINT if "sigint" in how else signal.SIGTERM)
            process.communicate(timeout=PATIENCE)
        (instance,) = locks.instances()
        assert instance.state == "left"
        view = locks.work("workflow:1")
        assert view is not None
        assert (view.state, view.tries) == ("offered", 0)


def test_a_process_that_is_killed_is_declared_dead_and_its_work_goes_to_another(file: str) -> None:
    process = run(
        """
        instance = locks.join(heartbeat=0.3, ttl=1.5)
        work = instance.assign("workflow:1", {"n": 1})
        print(work.token, flush=True)
        sys.stdin.read()
        """,
        file,
    )
    assert process.stdout is not None
    token = int(process.stdout.readline())
    with Holdfast(file) as locks, locks.join(heartbeat=0.3, ttl=60) as instance:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
        work = next(instance.claims("workflow", timeout=PATIENCE))
        assert (work.data, work.tries) == ({"n": 1}, 2)
        assert work.token > token
        eventually(lambda: "dead" in {each.state for each in locks.instances()})
        work.complete()


def test_the_writes_of_who_was_paused_are_refused(file: str) -> None:
    with (
        Holdfast(file) as paused,
        Holdfast(file) as locks,
        closing(sqlite3.connect(file.removeprefix("sqlite:///"), isolation_level=None)) as connection,
    ):
        connection.execute("CREATE TABLE orders (id INTEGER)")
        instance = paused.join(**MORTAL)
        work = instance.assign("workflow:1", ttl=2)
        connection.execute("BEGIN IMMEDIATE")
        work.fence(connection)
        connection.execute("INSERT INTO orders VALUES (1)")
        connection.execute("COMMIT")
        Spy(paused).fault = lambda _: StoreUnavailable("paused")
        with locks.join() as other:
            successor = next(other.claims("workflow", timeout=PATIENCE))
            assert successor.token > work.token
            # Whatever it believes, because its clock stood still.
            work._holding.kept.lost, work._holding.kept.trusted_until, work._holding.kept.member = (
                None,
                float("inf"),
                None,
            )
            work.check()
            connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(LeaseLost):
                work.fence(connection)
            connection.execute("ROLLBACK")
            successor.complete()
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1,)


def test_nothing_that_was_left_is_asked_of_a_store_that_was_closed(stage: Stage) -> None:
    client = stage.client()
    instance = stage.call(client.join)
    spy = Spy(client)
    stage.close(client)
    before = len(spy.seen)
    for call in (instance.leave, instance.claims("workflow").close):
        stage.call(call)
    assert len(spy.seen) == before
    assert instance_view(stage, instance).state == "left"
