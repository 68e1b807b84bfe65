"""The stores behind a server: asked from an event loop, many at once, and never waited for by it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.core import cluster as c
from holdfast.core.access import ListAccess
from holdfast.core.requests import (
    Acquire,
    Busy,
    Client,
    Granted,
    History,
    Inspect,
    List,
    Page,
    Queued,
    Release,
    Released,
    Renew,
    Signal,
    Watch,
)
from holdfast.errors import HoldfastError, OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.server import lanes as module
from holdfast.server.backend import Backend
from holdfast.stores.base import READS
from holdfast.stores.sql.options import split_url
from tests.faults.processes import eventually

HERE = Client("", "alpha", 1)
ENOUGH = 60.0  # seconds, on however busy a machine
SOON = 10.0  # of what is held up for ever, or not at all


def take(attempt: str, key: str = "nightly", *, wait: bool = False, instance: str = "") -> Acquire:
    return Acquire(key, attempt, attempt, 30.0, Client(instance, "alpha", 1), wait=wait)


@pytest.fixture(params=["memory", "sqlite", "postgres", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory://{tmp_path.name}"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/locks.db?synchronous=full"
    return request.getfixturevalue(f"{request.param}_locks")


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


class Notes:
    """Who takes note of what the store does."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.failed: list[str] = []
        self.answers: list[object] = []

    def group_answered(self, requests: list[object], answers: list[object], seconds: float) -> None:
        self.sizes.append(len(requests))
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, HoldfastError):
                self.failed.append(f"{type(request).__name__}: {type(answer).__name__}")

    def observe_answer(self, request: object, answer: object) -> None:
        self.answers.append(answer)


class Gate:
    """Keeps a store from answering until it is opened: everything, or what is about some keys only."""

    def __init__(self, backend: Backend, way: str = "execute", keys: Container[str] = ()) -> None:
        self._keys = keys
        self._store = backend._lanes["notable"].store
        self._execute = getattr(self._store, way)
        self._open = threading.Event()
        self.entered = threading.Event()
        setattr(self._store, way, self)

    def __call__(self, asked: Any) -> object:
        if not self._keys or asked.key in self._keys:
            self.entered.set()
            assert self._open.wait(30)
        return self._execute(asked)

    def open(self) -> None:
        self._open.set()


async def test_requests_are_answered_and_errors_raised(url: str) -> None:
    backend = Backend(url)
    await backend.open()
    try:
        granted = await backend.ask(take("a-1"))
        assert isinstance(granted, Granted)
        assert await backend.ask(Release("nightly", "a-1", granted.token)) == Released()
        assert (await backend.ask(Inspect("nightly"))).state == "free"
    finally:
        await backend.close()


async def test_a_signal_arrives_in_the_loops_thread_with_where_it_goes_on_to(url: str) -> None:
    backend = Backend(url)
    await backend.open()
    arrived: asyncio.Queue[tuple[Signal, threading.Thread]] = asyncio.Queue()
    backend.listen(lambda signal: arrived.put_nowait((signal, threading.current_thread())))
    try:
        granted = await backend.ask(take("a-1"))
        address = f"{backend.instance}/some-stream"
        assert isinstance(await backend.ask(take("b-1", wait=True, instance=address)), Queued)
        await backend.ask(Release("nightly", "a-1", granted.token))
        signal, thread = await asyncio.wait_for(arrived.get(), 30)
        assert (signal.kind, signal.attempt, signal.to) == ("granted", "b-1", "some-stream")
        assert thread is threading.current_thread()
    finally:
        await backend.close()


async def test_callers_have_the_history_they_ask_for(url: str) -> None:
    backend = Backend(url)
    await backend.open()
    try:
        await backend.ask(take("a-1", "quiet"))
        await backend.ask(take("b-1", "loud"), "all")
        assert await backend.ask(History("quiet")) == ()
        assert [event.kind for event in await backend.ask(History("loud"))] == ["granted"]
    finally:
        await backend.close()


async def test_what_comes_while_the_store_is_busy_shares_one_commit(file_url: str) -> None:
    """And each has its own answer."""
    notes = Notes()
    backend = Backend(file_url, observer=notes)
    await backend.open()
    gate = Gate(backend)
    asked = [asyncio.ensure_future(backend.ask(take("first")))]
    await asyncio.to_thread(gate.entered.wait, 30)
    asked += [asyncio.ensure_future(backend.ask(take(f"a-{n}", f"key-{n}"))) for n in range(40)]
    await asyncio.sleep(0)
    assert backend.pending == 40
    gate.open()
    answers = await asyncio.gather(*asked)
    assert all(isinstance(answer, Granted) for answer in answers)
    assert notes.sizes == [1, 40]
    assert len(notes.answers) == 41
    await backend.close()


async def test_a_whole_cluster_shares_one_commit_and_nobody_has_the_work_of_another(file_url: str) -> None:
    notes = Notes()
    backend = Backend(file_url, observer=notes)
    await backend.open()
    ids = [f"e-{number}" for number in range(8)]
    await backend.ask(c.Offer(tuple(c.OfferedWork(f"job:{number}") for number in range(40))))
    await asyncio.gather(*(backend.ask(c.Join(id, "engine", HERE, 8, 90.0)) for id in ids))
    gate = Gate(backend)
    first = asyncio.ensure_future(backend.ask(take("first")))
    await asyncio.to_thread(gate.entered.wait, 30)
    notes.sizes.clear()
    claims = [backend.ask(c.Claim(id, 1, f"{id}-1", ("job",), 4, 30.0, HERE)) for id in ids]
    beats = [backend.ask(c.Heartbeat(id, HERE, 90.0)) for id in ids]
    asked = asyncio.gather(*claims, *beats, backend.ask(take("a-1", "other")))
    await asyncio.sleep(0)
    gate.open()
    await first
    *answers, granted = await asked
    assert notes.sizes == [1, 17]
    assert isinstance(granted, Granted)
    counted = await backend.ask(c.CountWork())
    assert counted == (c.WorkCount("job", 8, 32, 0, counted[0].waiting),)
    works = [work for claimed in answers[:8] for work in claimed.works]
    assert len({work.key for work in works}) == len(works) == 32
    ends = await asyncio.gather(
        *(backend.ask(c.Finish(each.key, each.attempt, each.token, "completed")) for each in works),
        *(backend.ask(c.Leave(id)) for id in ids),
    )
    assert {each.state for each in ends} == {"completed", "left"}
    await backend.close()


async def test_reads_have_a_line_of_their_own(file_url: str) -> None:
    backend = Backend(file_url)
    await backend.open()
    execute = backend._lanes["notable"].store.execute
    gate = Gate(backend)
    gate._store.execute = lambda request: (execute if type(request) in READS else gate)(request)
    first = asyncio.ensure_future(backend.ask(take("first")))
    await asyncio.to_thread(gate.entered.wait, 30)
    asked = [asyncio.ensure_future(backend.ask(kind)) for kind in (Inspect("x"), List(), c.CountWork())]
    await asyncio.sleep(0)
    assert len(backend._lanes["notable"]._queues[0]) == 0
    gate.open()
    await asyncio.gather(first, *asked)
    await backend.close()


async def test_reads_are_answered_while_a_write_is_blocked(file_url: str, tmp_path: Path) -> None:
    """On SQLite somebody else may have the file for as long as a request may take."""
    backend = Backend(f"{file_url}?busy_timeout=600")
    await backend.open()
    granted = await backend.ask(take("a-1", "mine"), "all")  # with an event that nobody has read
    somebody = sqlite3.connect(tmp_path / "locks.db", isolation_level=None)
    try:
        somebody.execute("BEGIN IMMEDIATE")
        blocked = [asyncio.ensure_future(backend.ask(take("b-1"), level)) for level in ("notable", "all")]
        async with asyncio.timeout(ENOUGH):
            looks = (Inspect("mine"), List(), History("mine"), Watch("", after=0), ListAccess())
            more = (c.ListInstances(), c.InspectWork("job:1"), c.ListWork(), c.CountWork())
            answers = await asyncio.gather(*(backend.ask(each) for each in (*looks, *more)))
            again = [await backend.ask(each) for each in (*looks, *more)]  # and by itself
        assert answers[0].holder.token == again[0].holder.token == granted.token
        assert [view.key for view in answers[1].locks] == ["mine"]
        assert [event.kind for event in answers[2]] == ["granted"]
        assert not any(each.done() for each in blocked)
        somebody.execute("ROLLBACK")
        assert isinstance((await asyncio.gather(*blocked))[0], Granted | Busy)
        assert (await backend.ask(Watch("", after=0))).events[0].key == "mine"
    finally:
        somebody.close()
        await backend.close()


async def test_who_has_gone_is_not_asked_for(file_url: str) -> None:
    """Nothing was done yet: so nothing has to be undone."""
    backend = Backend(file_url)
    await backend.open()
    gate = Gate(backend)
    first = asyncio.ensure_future(backend.ask(take("first")))
    await asyncio.to_thread(gate.entered.wait, 30)
    gone = asyncio.ensure_future(backend.ask(take("gone", "other")))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    gate.open()
    await first
    assert await backend.ask(Inspect("other")) is None
    await backend.close()


async def test_when_too_many_wait_for_the_store_others_are_refused_at_once(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not those who only read: they do not wait for who writes."""
    monkeypatch.setattr(module, "MOST_PENDING", 3)
    backend = Backend(file_url)
    await backend.open()
    gate = Gate(backend, keys=["nightly"])
    first = asyncio.ensure_future(backend.ask(take("first")))
    await asyncio.to_thread(gate.entered.wait, 30)
    asked = [asyncio.ensure_future(backend.ask(take(f"a-{n}", f"key-{n}"))) for n in range(5)]
    await asyncio.wait(asked[3:])
    for refused in asked[3:]:
        with pytest.raises(StoreUnavailable, match="3 requests wait for the store already"):
            refused.result()
    assert await backend.ask(Inspect("key-0")) is None
    gate.open()
    await asyncio.gather(first, *asked[:3])
    await backend.close()


@pytest.mark.parametrize(
    ("raised", "seen"), [(OutcomeUnknown("lost"), OutcomeUnknown), (ZeroDivisionError("oops"), StoreError)]
)
async def test_a_store_that_fails_answers_all_who_wait_and_goes_on(file_url: str, raised, seen) -> None:
    notes = Notes()
    backend = Backend(file_url, observer=notes)
    await backend.open()
    store = backend._lanes["notable"].store
    execute = store.execute

    def fail(request):
        raise raised

    store.execute = fail
    with pytest.raises(seen) as caught:
        await backend.ask(take("a-1"))
    assert "oops" not in str(caught.value)  # what nobody expected may have anything in it
    store.execute = execute
    assert isinstance(await backend.ask(take("a-1")), Granted)
    assert notes.failed == [f"Acquire: {seen.__name__}"]
    await backend.close()


async def test_what_was_asked_is_answered_before_the_store_is_closed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSE_WITHIN", ENOUGH)
    backend = Backend(url)
    await backend.open()
    asked = [asyncio.ensure_future(backend.ask(take(f"a-{n}", f"key-{n}"))) for n in range(100)]
    await asyncio.sleep(0)
    await backend.close()
    assert all(isinstance(answer, Granted) for answer in await asyncio.gather(*asked))
    with pytest.raises(StoreUnavailable):
        await backend.ask(take("late"))


async def test_writers_are_told_to_who_wants_to_know(file_url: str) -> None:
    backend = Backend(file_url)
    await backend.open()
    wrote: list[int] = []
    backend.on_write(lambda: wrote.append(1))
    await backend.ask(Inspect("nightly"))
    assert not wrote
    await backend.ask(take("a-1"))
    assert wrote
    for request in (
        c.Join("e-1", "engine", HERE, 8, 90.0),
        c.Heartbeat("e-1", HERE, 90.0),
        c.Assign("job:1", "a-1", "ann", 30.0, HERE),
        c.Claim("e-1", 1, "c-1", ("job",), 8, 30.0, HERE),
        c.Finish("job:1", "a-1", 1, "completed"),
        c.Forget("job:1"),
        c.Leave("e-1"),
    ):
        wrote.clear()
        await backend.ask(request)
        assert wrote, request
    wrote.clear()
    for request in (c.Offer((c.OfferedWork("job:2"),)), c.InspectWork("job:2"), c.ListInstances()):
        await backend.ask(request)  # no events
    assert not wrote
    await backend.close()


class Watched:
    """Notes in which thread a store is asked for how many at once."""

    def __init__(self, backend: Backend) -> None:
        self._store = backend._lanes["notable"].store
        self.seen: list[tuple[str, int]] = []
        for name in ("execute_many", "try_many"):
            setattr(self._store, name, self._note(getattr(self._store, name)))

    def _note(self, execute: Callable[[list[object]], object]) -> Callable[[list[object]], object]:
        def noted(requests: list[object]) -> object:
            answers = execute(requests)
            if answers is not None:
                thread = threading.current_thread()
                here = thread is threading.main_thread()
                self.seen.append(("the loop" if here else "the thread", len(requests)))
            return answers

        return noted


async def ask_many(backend: Backend, count: int, prefix: str = "k") -> list[object]:
    asked = [backend.ask(take(f"{prefix}-{number}", f"{prefix}{number}")) for number in range(count)]
    return await asyncio.gather(*asked)


async def test_the_loop_itself_answers_many_and_leaves_few_to_the_thread(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUICK", 60.0)  # however slow this disk is
    backend = Backend(file_url)
    await backend.open()
    watched = Watched(backend)
    answers = await ask_many(backend, module.MANY - 1) + await ask_many(backend, 12, "more")
    assert all(isinstance(each, Granted) for each in answers)
    assert watched.seen == [("the thread", module.MANY - 1), ("the loop", 12)]
    monkeypatch.setattr(module, "QUICK", 0.0)  # the disk is slow: everybody else would wait for it
    assert all(isinstance(each, Granted) for each in await ask_many(backend, 12, "slow"))
    assert watched.seen[2:] == [("the thread", 12)]
    await backend.close()


async def test_the_loop_answers_many_at_once_that_wait_for_nothing_and_one_that_may_take_long() -> None:
    """Others are served between two lists, or two batches, however many come in."""
    notes = Notes()
    backend = Backend("memory://many", observer=notes)
    await backend.open()
    asked = [backend.ask(take(f"a-{number}", f"k{number}")) for number in range(module.GROUP + 3)]
    asked += [backend.ask(each) for each in (List(), Renew(()), take("b-1", "last"))]
    await asyncio.gather(*asked)
    assert notes.sizes == [module.GROUP, 4, 1, 1]
    await backend.close()


async def test_the_loop_waits_for_nobody_who_writes(
    file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it cannot do at once is for the thread, which may wait; and the loop serves others meanwhile."""
    monkeypatch.setattr(module, "QUICK", 600.0)
    backend = Backend(f"{file_url}?busy_timeout=30")
    await backend.open()
    watched = Watched(backend)
    somebody = sqlite3.connect(tmp_path / "locks.db", isolation_level=None)
    try:
        somebody.execute("BEGIN IMMEDIATE")
        blocked = asyncio.ensure_future(ask_many(backend, 12))
        async with asyncio.timeout(ENOUGH):
            assert isinstance(await backend.ask(List()), Page)
            for _ in range(20):
                await asyncio.sleep(0.001)
        assert not blocked.done()
        assert watched.seen == []
        more = asyncio.ensure_future(ask_many(backend, 8, "more"))  # who come later wait for their turn
        await asyncio.sleep(0)
        somebody.execute("ROLLBACK")
        assert all(isinstance(each, Granted) for each in (*await blocked, *await more))
        assert watched.seen == [("the thread", 12), ("the loop", 8)]
    finally:
        somebody.close()
        await backend.close()


async def until_idle(backend: Backend) -> None:
    queues = backend._lanes["notable"]._all_queues()
    await asyncio.to_thread(eventually, lambda: not any(queue.is_busy for queue in queues))


class Company:
    """A first request that is alone and a second one that goes with a group: both are under way."""

    def __init__(self, backend: Backend) -> None:
        self.alone, self.together = Gate(backend, keys={"first", "locked"}), Gate(backend, "try_together")
        self._backend = backend

    async def begin(self) -> list[asyncio.Future[Any]]:
        await until_idle(self._backend)
        first = self.ask("first", "first")
        await asyncio.to_thread(self.alone.entered.wait, 30)
        second = self.ask("second", "second")
        await asyncio.to_thread(self.together.entered.wait, 30)
        return [first, second]

    def ask(self, attempt: str, key: str) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._backend.ask(take(attempt, key)))

    async def ask_all(self, *wanted: tuple[str, str]) -> list[asyncio.Future[Any]]:
        asked = [self.ask(*each) for each in wanted]
        await asyncio.sleep(0)
        return asked

    def open(self) -> None:
        self.alone.open()
        self.together.open()


@pytest.fixture
def nothing_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups may take as long as a gate is closed."""
    monkeypatch.setattr(module, "STUCK", 600.0)


@pytest.mark.usefixtures("nothing_is_stuck")
async def test_plain_requests_that_come_while_others_are_committed_go_together(postgres_locks: str) -> None:
    notes = Notes()
    backend = Backend(f"{postgres_locks}&pool_size=1", observer=notes)
    await backend.open()
    company = Company(backend)
    asked = await company.begin()
    asked += await company.ask_all(*((f"a-{n}", f"key-{n}") for n in range(20)))
    assert backend.pending == 20
    company.open()
    granted = await asyncio.gather(*asked)
    assert sorted(notes.sizes) == [1, 1, 20]
    assert len({each.token for each in granted}) == 22
    await backend.close()


@pytest.mark.usefixtures("nothing_is_stuck")
async def test_who_has_to_wait_for_a_row_holds_up_nobody_who_came_with_him(postgres_locks: str) -> None:
    """Nor does who wants the same key: each is asked for by himself, and they do not wait for each other."""
    notes = Notes()
    backend = Backend(f"{postgres_locks}&pool_size=5", observer=notes)
    await backend.open()
    token = (await backend.ask(take("a-1", "locked"))).token
    await backend.ask(Release("locked", "a-1", token))
    with psycopg.connect(split_url(postgres_locks)[0]) as somebody:
        somebody.execute("SELECT 1 FROM holdfast_locks WHERE lock_key = 'locked' FOR NO KEY UPDATE")
        company = Company(backend)
        first, second = await company.begin()
        notes.sizes.clear()
        locked = await company.ask_all(("b-1", "locked"), ("b-2", "locked"), ("b-3", "locked"))
        free = await company.ask_all(("b-4", "free"), ("b-5", "free"))
        company.together.open()
        async with asyncio.timeout(SOON):
            assert isinstance(await second, Granted)
            assert sorted(type(each).__name__ for each in await asyncio.gather(*free)) == ["Busy", "Granted"]
        assert not any(each.done() for each in (first, *locked))
        somebody.rollback()
    company.alone.open()
    assert isinstance(await first, Granted)
    answers = await asyncio.gather(*locked)
    assert sorted(type(each).__name__ for each in answers) == ["Busy", "Busy", "Granted"]
    assert sum(notes.sizes) == 7  # each is counted where it was answered
    await backend.close()


async def test_nobody_waits_for_a_group_that_does_not_come_back(postgres_locks: str) -> None:
    """Its connection may be dead, which is noticed only when an answer should have come."""
    backend = Backend(f"{postgres_locks}&pool_size=2")
    await backend.open()
    company = Company(backend)
    first, second = await company.begin()
    company.alone.open()
    await first
    # Whom it keeps waiting already; and who comes later, and finds that it is so.
    asked = await company.ask_all(*((f"a-{n}", f"key-{n}") for n in range(8)))
    async with asyncio.timeout(SOON):
        answers = await asyncio.gather(*asked)
        assert backend._lanes["notable"]._company[Acquire].is_stuck(module.STUCK)
        answers.append(await company.ask("late", "late"))
    assert all(isinstance(each, Granted) for each in answers)
    assert not second.done()
    company.open()
    assert isinstance(await second, Granted)
    await backend.close()


@pytest.mark.usefixtures("nothing_is_stuck")
async def test_one_timer_looks_after_all_who_wait_for_groups(
    postgres_locks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If each kind of request had one of its own, each of those would make one more for every kind."""
    backend = Backend(f"{postgres_locks}&pool_size=1")
    await backend.open()
    company = Company(backend)
    asked = await company.begin()
    asked += await company.ask_all(("a-1", "key-1"))
    lane = backend._lanes["notable"]
    for waiting in (0, 1):  # one is under way, then one waits
        asked.append(asyncio.ensure_future(backend.ask(Release(f"key-{waiting}", "b", 1))))
        await asyncio.sleep(0)
        await asyncio.to_thread(eventually, lambda: len(lane._company[Release]) == waiting)  # noqa: B023
    assert [len(queue) for queue in lane._company.values()] == [1, 1]
    looks: list[float] = []
    with monkeypatch.context() as patch:
        patch.setattr(lane, "_look_in", looks.append)
        lane._look_at_company()
    assert len(looks) == 1
    company.open()
    await asyncio.gather(*asked)
    await backend.close()


@pytest.mark.usefixtures("nothing_is_stuck")
@pytest.mark.parametrize("in_time", [True, False])
async def test_what_a_group_leaves_is_answered_when_the_store_is_closed(
    postgres_locks: str, monkeypatch: pytest.MonkeyPatch, in_time: bool
) -> None:
    """By the others, if they are there still."""
    monkeypatch.setattr(module, "CLOSE_WITHIN", ENOUGH if in_time else 0.1)
    backend = Backend(f"{postgres_locks}&pool_size=1")
    await backend.open()
    await backend.ask(take("a-1", "held"))
    company = Company(backend)
    first, second = await company.begin()
    asked = await company.ask_all(("b-1", "held"), ("b-2", "free"), ("b-3", "free"))
    company.alone.open()
    await first
    closing = asyncio.ensure_future(backend.close())
    await asyncio.sleep(0)
    if not in_time:
        await closing
    company.open()
    async with asyncio.timeout(SOON):
        answers = await asyncio.gather(second, *asked, return_exceptions=True)
    left = Busy if in_time else StoreUnavailable
    assert [type(each) for each in answers] == [Granted, left, Granted, left]
    await closing
    company.alone._store.close()  # what came too late has opened it again


async def test_a_turn_ends_though_all_who_had_it_have_gone(file_url: str) -> None:
    """They have left after it was their turn, and before the thread had time for them."""
    backend = Backend(file_url)
    await backend.open()
    queue = backend._lanes["notable"]._queues[0]
    put = queue.put

    def leave(*asked: Any, **how: Any) -> None:
        for _, waiting in asked:
            waiting.cancel()
        put(*asked, **how)

    queue.put = leave  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await backend.ask(take("a-1"))
    queue.put = put  # type: ignore[method-assign]
    async with asyncio.timeout(ENOUGH):
        assert isinstance(await backend.ask(take("b-1", "other")), Granted)
    await backend.close()
