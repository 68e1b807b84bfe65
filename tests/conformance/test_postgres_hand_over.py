"""PostgreSQL's functions leave exactly what the rules leave, and tell the same.

Both are put into the same situations, which are in `situations`. Each has a database of its own: a
notification reaches all who listen in one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast.core.events import HistoryLevel
from holdfast.core.requests import Granted, Queued, Released, Signal
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.postgres.session import CHANNEL, END, PostgresSession
from holdfast.stores.sql.options import split_url
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.transactions.session import Batch
from holdfast.testing.conformance import CLIENT, OTHER_CLIENT
from holdfast.testing.conformance.asker import KEY, permits
from tests.conformance.situations import (
    ASKED,
    FULL,
    HAND_OVERS,
    JOINS,
    ONE,
    RELEASES,
    SEMAPHORES,
    House,
    Play,
    compare_hand_overs,
    compare_joins,
    compare_joins_of_semaphores,
    compare_releases_of_permits,
    semaphore,
)
from tests.extent import first
from tests.servers import PostgresServer
from tests.servers.fixtures import EMPTY, with_tables

LEVELS: tuple[HistoryLevel, ...] = ("notable", "all")


class DatabaseHouse(House):
    """A database of its own, and what is told in it to somebody else."""

    def __init__(self, url: str, level: HistoryLevel) -> None:
        self.theirs = psycopg.connect(split_url(url)[0], autocommit=True)
        for statement in EMPTY:
            self.theirs.execute(statement.encode())
        self.told: list[tuple[Any, ...]] = []
        self.theirs.add_notify_handler(self._note)
        self.theirs.execute(f'LISTEN "{CHANNEL}{OTHER_CLIENT.instance}"'.encode())
        self.store: Any = open_store(url, StoreOptions(CLIENT, level))
        self.store.open()
        self.heard = []
        self.store.listen(self.heard.append)

    def _note(self, notification: psycopg.Notify) -> None:
        kind, key, attempt, lasts, to = notification.payload.split("\n")
        self.told.append((kind, key, attempt, float(lasts), to))

    def read(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        return sorted(self.theirs.execute(f"SELECT {columns} FROM {table}".encode()).fetchall(), key=str)

    def state(self) -> dict[str, Any]:
        return super().state() | {"told": self.told}

    def close(self) -> None:
        self.store.close()
        self.theirs.close()


@pytest.fixture(scope="module")
def urls(postgres_server: PostgresServer) -> Iterator[list[str]]:
    made = [with_tables(postgres_server.create_database()) for _ in LEVELS]
    yield made
    for url in made:
        postgres_server.drop_database(url)


@pytest.fixture
def houses(urls: list[str]) -> Iterator[list[DatabaseHouse]]:
    made = [DatabaseHouse(url, level) for url, level in zip(urls, LEVELS, strict=True)]
    yield made
    for house in made:
        house.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What was sent, by the names of the statements, each time in one go."""
    names: list[list[str]] = []
    send = PostgresSession.send

    def spy(session: PostgresSession, batch: Batch, /, *, commits: bool = False) -> list[list[Row]]:
        names.append([name for name, _ in batch])
        return send(session, batch, commits=commits)

    monkeypatch.setattr(PostgresSession, "send", spy)
    return names


@pytest.mark.parametrize("situation", JOINS, ids=lambda each: each.__name__)
def test_joining_does_what_the_rules_do(houses: list[DatabaseHouse], situation: Play) -> None:
    compare_joins(houses, situation)


@pytest.mark.parametrize("options", first(1, RELEASES))
@pytest.mark.parametrize("situation", HAND_OVERS, ids=str)
def test_handing_over_does_what_the_rules_do(
    houses: list[DatabaseHouse], situation: str, options: dict[str, Any]
) -> None:
    compare_hand_overs(houses, situation, options)


@pytest.mark.parametrize("asked", first(2, ASKED))
@pytest.mark.parametrize("situation", SEMAPHORES)
def test_joining_a_semaphore_does_what_the_rules_do(
    houses: list[DatabaseHouse], situation: str, asked: str
) -> None:
    compare_joins_of_semaphores(houses, situation, asked)


@pytest.mark.parametrize("options", first(1, RELEASES))
@pytest.mark.parametrize("releases", ["a-1", "a-2"])
@pytest.mark.parametrize("situation", SEMAPHORES)
def test_releasing_a_permit_does_what_the_rules_do(
    houses: list[DatabaseHouse], situation: str, releases: str, options: dict[str, Any]
) -> None:
    compare_releases_of_permits(houses, situation, releases, options)


def test_a_hand_over_of_a_permit_is_two_round_trips(
    houses: list[DatabaseHouse], sent: list[list[str]]
) -> None:
    house = houses[0]
    semaphore(*FULL, waiters=(ONE,))(house)
    sent.clear()
    assert isinstance(house.take("b-1", 100.0, terms=permits(2)), Queued)
    assert house.release("a-1", 100.5, token=100_000_000) == Released(0, "w-1")
    assert sent == [["join_full"], ["pass_permit", END, "notify_permit"]]


def test_the_winner_of_a_permit_is_told_all_that_it_can_enter_by(houses: list[DatabaseHouse]) -> None:
    house = houses[0]
    semaphore(*FULL, waiters=({"claim": 4.0},))(house)
    house.release("a-1", 101.0, token=100_000_000)
    ((token,),) = house.read("holdfast_locks", "token")
    assert house.heard == [Signal("granted", KEY, "w-1", 4.0, token=token, at=101.0)]
    assert house.take("w-1", 102.0, terms=permits(2)) == Granted(token, 10.0)


@pytest.mark.parametrize("level", [0, 1], ids=["by the function", "by the rules"])
def test_a_permit_that_is_left_while_a_transaction_pins_the_key_is_passed_on_to_nobody(
    houses: list[DatabaseHouse], level: int
) -> None:
    house = houses[level]
    semaphore(*FULL, waiters=(ONE,))(house)
    with psycopg.connect(house.theirs.info.dsn) as fencing:
        fencing.execute("SELECT FROM holdfast_locks FOR KEY SHARE")
        assert house.release("a-1", 101.0, token=100_000_000) == Released()
        assert house.read("holdfast_locks", "token, holds, waiters") == [(100_000_001, 1, 1)]
    assert isinstance(house.take("w-1", 102.0, terms=permits(2)), Granted)
