"""Connections that are not quite ours: through a pooler, from somebody else's pool or engine; and no signals.

Questions of the tests of the clients, asked again. None of them depends on a signal: with signals they are
answered sooner, without them a heartbeat later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from holdfast import Holdfast
from holdfast.stores.postgres import signals
from tests.clients import test_closing as closing
from tests.clients import test_keeping as keeping
from tests.clients import test_losing as losing
from tests.clients import test_taking as taking
from tests.clients import test_waiting as waiting
from tests.clients.support import PATIENCE, Stage, eventually
from tests.faults.conftest import SERVERS
from tests.servers import PgBouncer, PostgresServer
from tests.servers.fixtures import require

QUESTIONS: list[Callable[[Stage], None]] = [
    taking.test_tokens_rise_from_lease_to_lease,
    taking.test_without_a_timeout_it_waits_until_it_is_granted,
    taking.test_entering_again_keeps_the_token_and_needs_as_many_releases,
    taking.test_releasing_what_was_lost_raises_and_the_next_holder_keeps_it,
    waiting.test_nobody_barges_past_a_waiter,
    keeping.test_sweeping_by_hand_settles_what_is_over,
    keeping.test_listing_goes_through_all_pages,
    losing.test_an_expired_lease_goes_to_whoever_waits,
    closing.test_closing_gives_back_the_tickets_of_those_who_wait_and_tells_them,
    closing.test_closing_lets_go_of_the_store,
]
WITH_SIGNALS: list[Callable[[Stage], None]] = [
    waiting.test_clients_of_one_store_wake_each_other,
    waiting.test_breaking_a_lock_wakes_the_next,
    closing.test_closing_releases_everything_and_wakes_the_next,
]


@pytest.fixture(scope="module")
def pooler(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    require("pgbouncer")
    with PgBouncer(postgres_server, settings={"default_pool_size": 4}) as pooler:
        yield pooler


@pytest.fixture
def through(pooler: PgBouncer, postgres_locks: str) -> str:
    return pooler.through(postgres_locks)


@pytest.fixture(params=["said", "listening elsewhere", "unsaid"])
def pooled(
    request: pytest.FixtureRequest, through: str, postgres_locks: str, monkeypatch: pytest.MonkeyPatch
) -> str:
    if request.param == "unsaid":
        monkeypatch.setattr(signals, "ECHO", 0.2)  # it never comes, and each client waits for it once
        return through
    listen = f"&listen={quote(postgres_locks.partition('?')[0], safe='')}"
    return f"{through}&pooler=on{listen if request.param == 'listening elsewhere' else ''}"


@pytest.fixture
def pool(postgres_locks: str) -> Iterator[Any]:
    from psycopg_pool import ConnectionPool

    with ConnectionPool(postgres_locks.partition("?")[0], min_size=2, max_size=12, open=True) as pool:
        yield pool


@pytest.fixture(params=SERVERS)
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    import sqlalchemy

    url: str = request.getfixturevalue(f"{request.param}_locks").partition("?")[0]
    dialect = {"postgres": "postgresql+psycopg", "mariadb": "mysql+pymysql"}[request.param]
    engine = sqlalchemy.create_engine(f"{dialect}{url[url.index(':') :]}")
    yield engine
    engine.dispose()


@pytest.fixture(params=SERVERS)
def silent(request: pytest.FixtureRequest) -> str:
    return f"{request.getfixturevalue(f'{request.param}_locks')}&signals=off"


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


def ask(question: Callable[[Stage], None], kind: str, source: Any) -> None:
    stage = Stage(kind, source)
    try:
        question(stage)
    finally:
        stage.end()


@pytest.mark.parametrize("question", QUESTIONS)
def test_through_a_pooler(question: Callable[[Stage], None], kind: str, pooled: str) -> None:
    ask(question, kind, pooled)


@pytest.mark.parametrize("question", QUESTIONS)
def test_without_signals(question: Callable[[Stage], None], silent: str) -> None:
    ask(question, "sync", silent)


@pytest.mark.parametrize("question", [*QUESTIONS, *WITH_SIGNALS])
def test_with_a_pool_of_psycopg(question: Callable[[Stage], None], pool: Any) -> None:
    ask(question, "sync", pool)
    eventually(lambda: pool.get_stats()["pool_size"] == pool.get_stats()["pool_available"])


@pytest.mark.parametrize("question", [*QUESTIONS, *WITH_SIGNALS])
def test_with_an_engine(question: Callable[[Stage], None], engine: Any) -> None:
    ask(question, "sync", engine)
    eventually(lambda: engine.pool.checkedout() == 0)


def test_tasks_may_borrow_from_a_pool_as_well(pool: Any) -> None:
    ask(waiting.test_clients_of_one_store_wake_each_other, "async", pool)


def test_tasks_may_use_an_engine_as_well(engine: Any) -> None:
    ask(waiting.test_clients_of_one_store_wake_each_other, "async", engine)


def test_a_pooler_that_nobody_mentioned_is_noticed(through: str, caplog: pytest.LogCaptureFixture) -> None:
    """What one client prepared is not there in the next transaction, or is another client's."""
    one, two = Holdfast(through), Holdfast(through)
    with one, two, ThreadPoolExecutor(8) as threads:

        def work(n: int) -> None:
            with (one, two)[n % 2].hold(f"key-{n % 3}", timeout=PATIENCE):
                pass

        list(threads.map(work, range(80)))
        assert [client._engine.store.source.shared for client in (one, two)] == [True, True]  # type: ignore[attr-defined]
        with one.hold("nightly"):
            threads.submit(two.acquire, "nightly", owner="me")
            eventually(lambda: "is there a pooler in transaction mode" in caplog.text)


def test_the_settings_of_a_session_are_not_left_in_a_pooler(pooler: PgBouncer, through: str) -> None:
    """Another program's statements would run into our timeouts."""
    import psycopg

    with Holdfast(f"{through}&pooler=on") as locks:
        for n in range(20):
            with locks.hold(f"key-{n}"):
                pass
    with psycopg.connect(through.partition("?")[0], autocommit=True) as other:
        assert other.execute("SHOW lock_timeout").fetchone() == ("0",)
        assert other.execute("SHOW statement_timeout").fetchone() == ("0",)
        assert other.execute("SHOW synchronous_commit").fetchone() != ("local",)
