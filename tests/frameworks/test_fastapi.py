"""FastAPI as people use it: a lock in a dependency, run in whichever threads of a pool are free."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, Request

import holdfast
from holdfast import AsyncHoldfast, AsyncLease, Holdfast, Lease

THREADS = 8
REQUESTS = 200


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/locks.db"
    url: str = request.getfixturevalue("postgres_locks")
    return url


class Room:
    """Where one request may be at a time. It notices when two meet."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._inside = 0
        self.visits = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._mutex:
            self._inside += 1
            self.visits += 1
            self.most = max(self.most, self._inside)

    def __exit__(self, *_: object) -> None:
        with self._mutex:
            self._inside -= 1


def send(app: FastAPI, *, at_once: int, requests: int = REQUESTS) -> list[httpx.Response]:
    """Send that many requests to an application with a pool of 8 threads, and return the answers."""

    async def main() -> list[httpx.Response]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        places = asyncio.Semaphore(at_once)
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://app", timeout=None) as client:

            async def one() -> httpx.Response:
                async with places:
                    return await client.get("/")

            return await asyncio.gather(*(one() for _ in range(requests)))

    return asyncio.run(main())


def check(locks: Holdfast, answers: list[httpx.Response], room: Room) -> None:
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert (room.visits, room.most) == (len(answers), 1)
    assert locks.leases == ()
    assert [view for view in locks.list() if view.state != "free" or view.waiting] == []
    tokens = [answer.json() for answer in answers]
    assert len(set(tokens)) == len(tokens), "each had a lease of its own"


def test_requests_that_enter_and_leave_in_different_threads_do_not_meet(url: str) -> None:
    """Many more wait than there are threads: those that leave have a thread of FastAPI's of their own."""
    with Holdfast(url) as locks:
        app, room = FastAPI(), Room()

        def locked() -> Iterator[Lease]:
            with locks.hold("account:7") as lease:
                yield lease

        @app.get("/")
        async def endpoint(lease: Lease = Depends(locked)) -> int:
            with room:
                lease.check()
                await asyncio.sleep(0)
                return lease.token

        check(locks, send(app, at_once=REQUESTS), room)


def test_endpoints_that_are_run_in_threads_do_not_meet_either(url: str) -> None:
    """No more at once than threads: those that wait for the lock keep the others from having one."""
    with Holdfast(url) as locks:
        app, room = FastAPI(), Room()

        def locked() -> Iterator[Lease]:
            with locks.hold("account:7") as lease:
                yield lease

        @app.get("/")
        def endpoint(lease: Lease = Depends(locked)) -> int:
            with room:
                lease.check()
                return lease.token

        check(locks, send(app, at_once=THREADS), room)


def test_a_lease_is_released_by_a_background_task(url: str) -> None:
    with Holdfast(url) as locks:
        app, room = FastAPI(), Room()

        def finish(lease: Lease) -> None:
            with room:
                lease.check()
            lease.release()

        @app.get("/")
        def endpoint(background: BackgroundTasks) -> int:
            lease = locks.acquire("account:7")
            background.add_task(finish, lease)
            return lease.token

        check(locks, send(app, at_once=THREADS - 1, requests=60), room)


def test_asynchronous_dependencies_do_not_meet(url: str) -> None:
    room = Room()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncHoldfast(url) as locks:
            app.state.locks = locks
            yield

    app = FastAPI(lifespan=lifespan)

    async def locked(request: Request) -> AsyncIterator[AsyncLease]:
        async with request.app.state.locks.hold("account:7") as lease:
            yield lease

    @app.get("/")
    async def endpoint(lease: AsyncLease = Depends(locked)) -> int:
        with room:
            await asyncio.sleep(0)
            return lease.token

    async def main() -> list[httpx.Response]:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://app", timeout=None
            ) as client,
        ):
            return await asyncio.gather(*(client.get("/") for _ in range(REQUESTS)))

    answers = asyncio.run(main())
    with Holdfast(url) as locks:
        check(locks, answers, room)


def test_a_request_that_is_one_owner_enters_again_in_another_thread(url: str) -> None:
    """What an application, or an integration, sets for each request: everything it does is one owner."""
    with Holdfast(url) as locks:
        app, room = FastAPI(), Room()

        @app.middleware("http")
        async def one_owner(request: Request, go_on: Callable[[Request], Awaitable[Any]]) -> Any:
            with holdfast.owner():
                return await go_on(request)

        def locked() -> Iterator[Lease]:
            with locks.hold("account:7") as lease:
                yield lease

        @app.get("/")
        def endpoint(lease: Lease = Depends(locked)) -> int:
            with locks.hold("account:7", timeout=0) as again, room:
                assert again.token == lease.token
                return again.token

        check(locks, send(app, at_once=THREADS), room)
