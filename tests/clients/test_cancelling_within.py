# ruff: noqa: ASYNC110
"""Tasks that are cancelled while they ask inside a transaction of the caller's.

Their driver runs in the event loop, and what decides runs in a thread. Once the task was cancelled, that
thread must not use the connection any more: the caller rolls back, and the connection is somebody else's.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy
from psycopg.pq import TransactionStatus
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine

from holdfast import AsyncHoldfast, AsyncLease, LeaseLost
from holdfast.client.lender import Lender, TaskGone
from holdfast.stores.sql.options import split_url
from tests.clients.support import PATIENCE, QUICK

KEY = "account:7"

Ask = Callable[[AsyncHoldfast, AsyncLease | None, Any], Coroutine[Any, Any, Any]]


class Watch:
    """Counts what is run on a connection, and cancels a task when one statement begins, or has been run."""

    def __init__(self, cancel_at: int | None = None, *, after: bool = False) -> None:
        self.cancel_at = cancel_at
        self.after = after
        self.begun = 0
        self.task: asyncio.Task[Any] | None = None
        self.over = False
        self.late: list[Any] = []

    def begin(self, statement: Any) -> None:
        if self.over:
            self.late.append(statement)
        if self.task is not None:
            self.begun += 1
            if self.begun == self.cancel_at and not self.after:
                self.task.cancel()

    def end(self) -> None:
        if self.task is not None and self.begun == self.cancel_at and self.after:
            self.task.cancel()

    async def run(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Run something to be watched. Tell whether it was cancelled."""
        self.begun = 0
        self.task = asyncio.create_task(work)
        await asyncio.wait([self.task])
        task, self.task = self.task, None
        return task.cancelled()


def watched(watch: Watch) -> type[psycopg.AsyncCursor[Any]]:
    class Cursor(psycopg.AsyncCursor[Any]):
        async def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            watch.begin(query)
            await super().execute(query, params, **options)
            watch.end()
            return self

    return Cursor


class Lent:
    """A caller's connection, and the driver's that is under it."""

    def __init__(self, connection: Any, driver: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection
        self.driver = driver


@asynccontextmanager
async def lent(kind: str, url: str, watch: Watch) -> AsyncIterator[Lent]:
    """Lend a connection; afterwards it goes back into a pool."""
    plain = split_url(url)[0]
    drivers: list[psycopg.AsyncConnection[Any]] = []

    async def connect() -> psycopg.AsyncConnection[Any]:
        drivers.append(await psycopg.AsyncConnection.connect(plain, cursor_factory=watched(watch)))
        return drivers[-1]

    if kind == "psycopg":
        async with await connect() as connection:
            yield Lent(connection, connection)
        return
    engine = create_async_engine("postgresql+psycopg://", async_creator=connect)
    async with AsyncConnection(engine) if kind == "connection" else AsyncSession(engine) as connection:
        await connection.connection() if kind == "session" else None
        yield Lent(connection, drivers[-1])
    await engine.dispose()


async def fence(locks: AsyncHoldfast, lease: AsyncLease | None, connection: Any) -> None:
    assert lease is not None
    await lease.fence(connection)


async def release(locks: AsyncHoldfast, lease: AsyncLease | None, connection: Any) -> None:
    assert lease is not None
    await lease.release(within=connection)


async def acquire(locks: AsyncHoldfast, lease: AsyncLease | None, connection: Any) -> None:
    await locks.acquire(KEY, within=connection)


async def all_threads_are_done(threads: ThreadPoolExecutor) -> None:
    """Wait until nobody is at work any more for the task that was cancelled."""
    with ThreadPoolExecutor(1) as other:
        await asyncio.get_running_loop().run_in_executor(other, threads.shutdown)


@pytest.mark.parametrize("kind", ["psycopg", "connection", "session"])
@pytest.mark.parametrize("ask", [fence, release, acquire])
def test_after_a_cancellation_nothing_runs_on_the_callers_connection(
    postgres_locks: str, ask: Ask, kind: str
) -> None:
    async def cancel(at: int) -> bool:
        """Cancel when a statement begins. Tell whether there was such a one."""
        watch = Watch(at)
        threads = ThreadPoolExecutor(4)
        asyncio.get_running_loop().set_default_executor(threads)
        async with (
            AsyncHoldfast(postgres_locks, settings=QUICK) as locks,
            lent(kind, postgres_locks, watch) as theirs,
        ):
            lease = None if ask is acquire else await locks.acquire(KEY, owner="me")
            cancelled = await watch.run(ask(locks, lease, theirs.connection))
            await theirs.connection.rollback()
            watch.over = True
            await all_threads_are_done(threads)
            assert watch.late == []
            if not theirs.driver.closed:
                assert theirs.driver.info.transaction_status == TransactionStatus.IDLE
            if lease is not None:
                lease.check()
                await lease.release()
            view = await locks.inspect(KEY)
            assert view is None or view.state == "free"
        return cancelled

    async def main() -> None:
        at = 1
        while await asyncio.wait_for(cancel(at), PATIENCE):
            at += 1
        assert at > 2

    asyncio.run(main())


def test_a_cancellation_does_not_wait_for_somebody_elses_row(postgres_locks: str) -> None:
    plain = split_url(postgres_locks)[0]

    async def main() -> None:
        watch = Watch()
        async with (
            AsyncHoldfast(postgres_locks, settings=QUICK) as locks,
            lent("psycopg", postgres_locks, watch) as theirs,
        ):
            lease = await locks.acquire(KEY, ttl=60)
            with psycopg.connect(plain) as other:
                other.execute("SELECT 1 FROM holdfast_locks WHERE lock_key = %s FOR UPDATE", [KEY])
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await lease.release(within=theirs.connection)
                await theirs.connection.rollback()
                other.rollback()
            await lease.release(within=theirs.connection)
            await theirs.connection.commit()
            view = await locks.inspect(KEY)
            assert view is not None
            assert view.state == "free"

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


async def count(watch: Watch, work: Coroutine[Any, Any, Any], connection: Any) -> int:
    """Return how many statements something takes."""
    assert not await watch.run(work)
    await connection.rollback()
    return watch.begun


def test_a_cancelled_release_is_what_the_transaction_makes_of_it(postgres_locks: str) -> None:
    told: list[LeaseLost] = []

    async def main() -> None:
        watch = Watch(after=True)
        async with (
            AsyncHoldfast(postgres_locks, settings=QUICK) as locks,
            lent("psycopg", postgres_locks, watch) as theirs,
        ):
            lease = await locks.acquire(KEY, ttl=60, owner="me", on_lost=told.append)
            watch.cancel_at = await count(watch, release(locks, lease, theirs.connection), theirs.connection)

            assert await watch.run(release(locks, lease, theirs.connection))
            await theirs.connection.rollback()
            before = lease._holding.kept.trusted_until
            locks._engine.keeper.hurry(lease._holding.kept.grant.attempt)
            while lease._holding.kept.trusted_until == before:  # it is renewed
                await asyncio.sleep(0.01)
            lease.check()

            assert await watch.run(release(locks, lease, theirs.connection))
            await theirs.connection.commit()
            locks._engine.keeper.hurry(lease._holding.kept.grant.attempt)
            while lease.held:
                await asyncio.sleep(0.01)
            await lease.release()  # the transaction has done it, which is what was wanted
            assert told == []

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_a_block_that_was_cancelled_while_it_released_is_released_after_the_rollback(
    postgres_locks: str,
) -> None:
    async def work(locks: AsyncHoldfast, connection: psycopg.AsyncConnection[Any]) -> None:
        async with locks.hold(KEY, ttl=60) as lease, connection.transaction():
            await lease.release(within=connection)

    async def main() -> None:
        watch = Watch(cancel_at=3)  # BEGIN is not run by a cursor
        async with (
            AsyncHoldfast(postgres_locks, settings=QUICK) as locks,
            lent("psycopg", postgres_locks, watch) as theirs,
        ):
            assert await watch.run(work(locks, theirs.driver))
            view = await locks.inspect(KEY)
            assert view is not None
            assert view.state == "free"

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_a_cancelled_acquire_that_is_committed_all_the_same_is_given_back(postgres_locks: str) -> None:
    async def main() -> None:
        watch = Watch(after=True)
        async with (
            AsyncHoldfast(postgres_locks, settings=QUICK) as locks,
            lent("psycopg", postgres_locks, watch) as theirs,
        ):
            connection = theirs.connection
            watch.cancel_at = await count(watch, acquire(locks, None, connection), connection)
            assert await watch.run(locks.acquire(KEY, ttl=60, within=connection))
            await connection.commit()
            while (view := await locks.inspect(KEY)) is not None and view.state != "free":
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


# A driver that blocks is used in the task's own thread: there is no moment at which it could be cancelled.


@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_with_a_driver_that_blocks_a_release_is_whole(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/locks.db" if store == "sqlite" else request.getfixturevalue(f"{store}_locks")

    def connect() -> Any:
        if store == "sqlite":
            return sqlite3.connect(tmp_path / "locks.db")
        parts = sqlalchemy.make_url(split_url(url)[0])
        if store == "postgres":
            return psycopg.connect(split_url(url)[0])
        return pymysql.connect(
            host=parts.host, port=parts.port, user=parts.username, database=parts.database, ssl_disabled=True
        )

    async def cancelled(lease: AsyncLease, connection: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await lease.release(within=connection)
        connection.commit()
        await asyncio.sleep(PATIENCE)

    async def main() -> None:
        async with AsyncHoldfast(url, settings=QUICK) as locks:
            lease = await locks.acquire(KEY, ttl=60, owner="me")
            with closing(connect()) as connection, pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(cancelled(lease, connection))
            view = await locks.inspect(KEY)
            assert view is not None
            assert view.state == "free"

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


# The task that is lent to a thread.


def test_a_task_that_is_cancelled_twice_leaves_the_thread_without_an_answer() -> None:
    came: list[str] = []
    gone = threading.Event()

    async def main() -> None:
        lender = Lender()
        begun = asyncio.Event()

        async def first() -> None:
            begun.set()
            try:
                await asyncio.sleep(PATIENCE)
            finally:
                await asyncio.sleep(PATIENCE)  # as a driver does that cleans up

        async def second() -> None:
            came.append("second")

        def work() -> None:
            for act in (first, second):
                try:
                    lender.wait_for(act)
                except TaskGone:
                    came.append("gone")
            gone.set()

        task = asyncio.create_task(lender.lend(work))
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert gone.wait(PATIENCE)
    assert came == ["gone", "gone"]


def test_a_thread_whose_loop_was_closed_ends() -> None:
    async def make() -> Lender:
        return Lender()

    loop = asyncio.new_event_loop()
    lender = loop.run_until_complete(make())
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(lender.wait_for, asyncio.Event().wait)
        loop.close()
        with pytest.raises(TaskGone):
            asking.result(PATIENCE)
