"""Ready means that a write works: on every store, and whatever kind of trouble it has."""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.requests import Acquire, Client, Granted, Health, List, Probe
from holdfast.errors import StoreUnavailable
from holdfast.server import Server, ServerSettings
from holdfast.server.backend import Backend
from holdfast.server.system.logs import ServerLog
from holdfast.server.system.readiness import FRESH, Readiness
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from tests.clients.test_sqlite_trouble import fill, mounted
from tests.server.test_backend import Gate, take
from tests.server.test_main import get

ENOUGH = 60.0  # seconds, on however busy a machine


class Backed:
    """A backend that counts, and answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.answers: asyncio.Queue[Exception | None] = asyncio.Queue()

    async def ask(self, request: object) -> None:
        self.asked.append(request)
        if error := await self.answers.get():
            raise error


class Stage:
    def __init__(self, within: float = ENOUGH) -> None:
        self.now = 1000.0
        self.backend = Backed()
        self.said: list[str] = []
        self.readiness = Readiness(self.backend, self, within=within, clock=lambda: self.now)

    def say(self, message: str, level: str = "info") -> None:
        self.said.append(f"{level}: {message}")


async def test_all_who_ask_at_once_share_one_write() -> None:
    stage = Stage()
    looks = [asyncio.create_task(stage.readiness.look()) for _ in range(100)]
    await asyncio.sleep(0)
    stage.backend.answers.put_nowait(None)
    assert await asyncio.gather(*looks) == [""] * 100
    assert stage.backend.asked == [Probe()]


async def test_it_is_ready_however_many_wait_for_the_store(tmp_path: Path) -> None:
    """The probe goes first: how long the line is says nothing of whether a write works."""
    backend = Backend(f"sqlite:///{tmp_path}/locks.db")
    await backend.open()
    gate = Gate(backend)
    answered: list[str] = []

    async def ask(request: Acquire | Probe) -> None:
        await backend.ask(request)
        answered.append(request.attempt if isinstance(request, Acquire) else "probe")

    try:
        tasks = [asyncio.create_task(ask(take("a-0")))]
        assert await asyncio.to_thread(gate.entered.wait, ENOUGH)
        tasks += [asyncio.create_task(ask(take(f"a-{number}"))) for number in range(1, 200)]
        tasks += [asyncio.create_task(ask(Probe()))]
        await asyncio.sleep(0)
        assert backend.pending == 200
        gate.open()
        await asyncio.gather(*tasks)
        assert answered[:3] == ["a-0", "probe", "a-1"]
    finally:
        gate.open()
        await backend.close()


async def test_an_outcome_is_told_for_a_moment_and_then_asked_for_again() -> None:
    stage = Stage()
    stage.backend.answers.put_nowait(None)
    assert await stage.readiness.look() == ""
    stage.backend.answers.put_nowait(StoreUnavailable("/secret/locks.db: database or disk is full"))
    stage.now += FRESH - 0.01
    assert await stage.readiness.look() == ""
    stage.now += 0.02
    assert await stage.readiness.look() == "a write fails: StoreUnavailable"
    stage.now += FRESH
    stage.backend.answers.put_nowait(None)
    assert await stage.readiness.look() == ""
    assert len(stage.backend.asked) == 3
    assert stage.said == [
        "error: not ready: /secret/locks.db: database or disk is full",
        "info: ready again: a write works",
    ]


async def test_a_write_that_hangs_is_told_in_time_and_no_other_is_begun() -> None:
    stage = Stage(within=0.0)
    for _ in range(3):
        assert await stage.readiness.look() == "a write takes longer than 0 s"
        stage.now += 10.0
    assert len(stage.backend.asked) == 1
    stage.backend.answers.put_nowait(None)
    assert stage.readiness._probe is not None
    await asyncio.wait({stage.readiness._probe})
    assert await stage.readiness.look() == ""
    assert stage.said == [
        "error: not ready: a write takes longer than 0 s",
        "info: ready again: a write works",
    ]
    await stage.readiness.close()


# Real stores.


@pytest.fixture(params=["memory", "sqlite", "postgres", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory://{tmp_path.name}"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/locks.db"
    return str(request.getfixturevalue(f"{request.param}_locks"))


@asynccontextmanager
async def server(url: str) -> AsyncIterator[Server]:
    settings = ServerSettings(url=url, port=0, sweep_every=0.0)
    async with Server(settings, log=ServerLog("text", "error", io.StringIO())) as running:
        yield running


async def ready(at: Server) -> tuple[int, Any]:
    status, body = await get(at.url, "/readyz")
    return status, json.loads(body)


async def until(at: Server, status: int) -> Any:
    async with asyncio.timeout(ENOUGH):
        while (told := await ready(at))[0] != status:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return told[1]


async def test_a_probe_is_written_and_shows_nowhere(url: str) -> None:
    backend = Backend(url)
    await backend.open()
    try:
        for _ in range(3):
            assert await backend.ask(Probe()) == Health()
        assert (await backend.ask(List())).locks == ()
        asked = Acquire("nightly", "a-1", "ann", 30.0, Client("", "alpha", 1))
        assert isinstance(await backend.ask(asked), Granted)
    finally:
        await backend.close()


def test_a_probe_is_a_write(tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    store = open_store(f"sqlite:///{path}?busy_timeout=0.1", StoreOptions(Client("", "alpha", 1)))
    with closing(store):
        store.open()
        with locked(path), pytest.raises(StoreUnavailable, match="keeps it locked"):
            store.execute(Probe())
        assert store.execute(Probe()) == Health()


async def test_a_client_of_a_server_can_ask_for_it(tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    async with server(f"sqlite:///{path}?busy_timeout=0.2") as running:
        store = open_store(running.url, StoreOptions(Client("", "alpha", 1)))
        await asyncio.to_thread(store.open)
        try:
            assert await asyncio.to_thread(store.execute, Probe()) == Health()
            with locked(path):
                await until(running, 503)
                with pytest.raises(StoreUnavailable, match="not ready"):
                    await asyncio.to_thread(store.execute, Probe())
        finally:
            await asyncio.to_thread(store.close)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as somebody:
        somebody.execute("BEGIN IMMEDIATE")
        yield


async def test_a_file_that_somebody_keeps_locked_is_not_ready(tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    async with server(f"sqlite:///{path}?busy_timeout=0.2") as running:
        assert (await ready(running))[0] == 200
        with locked(path):
            told = await until(running, 503)
            assert told["status"] == "not ready"
            assert str(path) not in json.dumps(told)
            assert (await get(running.url, "/v1/locks"))[0] == 200  # reading goes on
            assert b"\nholdfast_ready 0" in (await get(running.url, "/metrics"))[1]
        await until(running, 200)
        assert b"\nholdfast_ready 1" in (await get(running.url, "/metrics"))[1]


async def test_a_write_that_hangs_does_not_keep_who_asks(tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    async with server(f"sqlite:///{path}?busy_timeout=600") as running:
        with locked(path):
            assert (await until(running, 503))["detail"] == "a write takes longer than 2 s"
        await until(running, 200)


async def test_a_full_disk_is_not_ready(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=1m") as disk:
        async with server(f"sqlite:///{disk / 'locks.db'}") as running:
            filler = fill(disk)
            assert "fails" in (await until(running, 503))["detail"]
            filler.unlink()
            await until(running, 200)


@pytest.mark.parametrize("how", ["move", "delete", "replace"])
async def test_a_file_that_is_taken_away_is_not_ready_and_nothing_is_granted(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "locks.db"
    async with server(f"sqlite:///{path}") as running:
        assert (await ready(running))[0] == 200
        if how == "delete":
            path.unlink()
        else:
            path.rename(tmp_path / "old.db")
        if how == "replace":
            for name in ("locks.db-wal", "locks.db-shm"):
                (tmp_path / name).unlink()
            backend = Backend(f"sqlite:///{path}")
            await backend.open()
            await backend.close()
        assert (await until(running, 503))["detail"] == "a write fails: StoreMisconfigured"
        acquire = "/v1/locks/nightly/acquire"
        assert (await get(running.url, acquire, method="POST", body=b'{"owner":"a"}'))[0] >= 500
        assert (await get(running.url, "/v1/locks"))[0] >= 500
        assert (await get(running.url, "/healthz"))[0] == 200


@pytest.mark.parametrize(
    ("database", "lock", "unlock"),
    [
        ("postgres", "BEGIN; LOCK TABLE holdfast_locks, holdfast_ended IN SHARE MODE", "ROLLBACK"),
        ("mariadb", "LOCK TABLES holdfast_locks READ, holdfast_ended READ", "UNLOCK TABLES"),
    ],
)
async def test_tables_that_can_only_be_read_are_not_ready(
    request: pytest.FixtureRequest, database: str, lock: str, unlock: str
) -> None:
    url = request.getfixturevalue(f"{database}_locks")
    _, admin = request.getfixturevalue(f"{database}_database")
    async with server(url) as running:
        assert (await ready(running))[0] == 200
        with closing(admin.cursor()) as cursor:
            cursor.execute(lock)
            try:
                await until(running, 503)
                assert (await get(running.url, "/v1/locks"))[0] == 200
            finally:
                cursor.execute(unlock)
        await until(running, 200)


async def test_a_database_that_is_read_only_is_not_ready(
    postgres_locks: str, postgres_database: tuple[str, Any]
) -> None:
    """As after a failover, on the side that was left behind."""
    _, admin = postgres_database
    name = admin.info.dbname
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    async with server(postgres_locks) as running:
        assert (await ready(running))[0] == 200
        try:
            admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
            admin.execute(cut)
            assert "fails" in (await until(running, 503))["detail"]
        finally:
            admin.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
            admin.execute(cut)
        await until(running, 200)
