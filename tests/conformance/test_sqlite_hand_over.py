"""Fast joins and hand-overs on SQLite leave exactly what the rules leave, and tell the same.

Both are put into the same situations, which are in `situations`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.events import HistoryLevel
from holdfast.core.requests import Granted, Queued, RefreshTicket, Released, Renew, Request, Signal, Sweep
from holdfast.stores.base import StoreOptions
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.conformance import CLIENT
from holdfast.testing.conformance.asker import KEY, permits
from proof.checkers.order import rules
from proof.checkers.order.clocks import Clocks
from proof.checkers.order.requests import Asked
from proof.checkers.order.rules import Findings
from proof.checkers.order.steps import Replay
from proof.histories import audit
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
    held,
    semaphore,
)


class FileHouse(House):
    """A file of its own."""

    def __init__(self, path: Path, level: HistoryLevel) -> None:
        self.path = path
        self.store = SQLiteStore(path, StoreOptions(CLIENT, level))
        self.store.open()
        self.heard = []
        self.store.listen(self.heard.append)
        self.said: list[str] = []  # what SQLite was asked

    def read(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(f"SELECT {columns} FROM {table} ORDER BY 1").fetchall()

    def listen_in(self) -> None:
        connection = self.store.sessions.database._connection
        assert connection is not None
        connection.set_trace_callback(self.said.append)


@pytest.fixture
def houses(tmp_path: Path) -> Any:
    levels: tuple[HistoryLevel, ...] = ("notable", "all")
    made = [FileHouse(tmp_path / f"{level}.db", level) for level in levels]
    yield made
    for house in made:
        house.store.close()


@pytest.mark.parametrize("situation", JOINS, ids=lambda each: each.__name__)
def test_joining_does_what_the_rules_do(houses: list[FileHouse], situation: Play) -> None:
    compare_joins(houses, situation)


@pytest.mark.parametrize("options", RELEASES)
@pytest.mark.parametrize("situation", HAND_OVERS, ids=str)
def test_handing_over_does_what_the_rules_do(
    houses: list[FileHouse], situation: str, options: dict[str, Any]
) -> None:
    compare_hand_overs(houses, situation, options)


def test_a_join_and_a_hand_over_are_a_few_statements_each(houses: list[FileHouse]) -> None:
    house = houses[0]
    held(house)
    house.take("z-1", 100.0)  # so that it is known that somebody waits
    house.listen_in()
    assert isinstance(house.take("b-1", 100.0), Queued)
    assert [text.split()[0] for text in house.said] == ["BEGIN", "UPDATE", "INSERT", "COMMIT"]
    house.said.clear()
    assert house.release("a-1", 100.5) == Released(0, "z-1")
    assert [text.split()[0] for text in house.said] == ["BEGIN", "SELECT", "UPDATE", "DELETE", "COMMIT"]


def test_the_winner_is_told_all_that_it_can_enter_by(houses: list[FileHouse]) -> None:
    house = houses[0]
    held(house)
    house.take("b-1", 100.0, claim=4.0)
    house.release("a-1", 101.0)
    ((token,),) = house.read("holdfast_locks", "token")
    assert house.heard == [Signal("granted", KEY, "b-1", 4.0, token=token, at=101.0)]
    assert house.take("b-1", 102.0) == Granted(token, 10.0)


def test_the_winner_is_told_after_the_commit(houses: list[FileHouse]) -> None:
    house = houses[0]
    seen: list[Any] = []
    house.store.listen(lambda _: seen.append(house.read("holdfast_locks", "attempt")))
    held(house)
    house.take("b-1", 100.0)
    house.release("a-1", 101.0)
    assert seen == [[("b-1",)]]


@pytest.mark.parametrize(
    "request_",
    [Sweep(now=111.0), Renew(tickets=(RefreshTicket(KEY, "b-1", 15.0),), now=111.0)],
    ids=["sweep", "renew"],
)
def test_what_is_undone_as_a_whole_is_told_to_nobody(
    houses: list[FileHouse], request_: Request[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1: its winner would enter by a token that was never granted."""
    house = houses[0]
    house.take("a-1", 100.0)
    house.take("b-1", 101.0, patience=60.0)
    before = house.state()

    def fail(self: object, *args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(house.store.dialect), "tidy_up", fail)
    monkeypatch.setattr(type(house.store.dialect), "refresh", fail)
    with pytest.raises(KeyboardInterrupt):
        house.ask(request_)
    assert house.heard == []
    assert house.state() == before
    monkeypatch.undo()
    house.ask(request_)
    assert [signal.attempt for signal in house.heard] == ["b-1"]


# Semaphores.


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("situation", SEMAPHORES)
def test_joining_a_semaphore_does_what_the_rules_do(
    houses: list[FileHouse], situation: str, asked: str
) -> None:
    compare_joins_of_semaphores(houses, situation, asked)


@pytest.mark.parametrize("options", RELEASES)
@pytest.mark.parametrize("releases", ["a-1", "a-2"])
@pytest.mark.parametrize("situation", SEMAPHORES)
def test_releasing_a_permit_does_what_the_rules_do(
    houses: list[FileHouse], situation: str, releases: str, options: dict[str, Any]
) -> None:
    compare_releases_of_permits(houses, situation, releases, options)


def test_a_join_and_a_hand_over_of_a_semaphore_are_few_statements_each(houses: list[FileHouse]) -> None:
    house = houses[0]
    semaphore(*FULL, waiters=(ONE,))(house)
    house.listen_in()
    assert isinstance(house.take("b-1", 100.0, terms=permits(2)), Queued)
    assert [text.split()[0] for text in house.said] == ["BEGIN", "UPDATE", "INSERT", "SELECT", "COMMIT"]
    house.said.clear()
    assert house.release("a-1", 100.5, token=100_000_000) == Released(0, "w-1")
    assert [text.split()[0] for text in house.said] == (
        ["BEGIN", "SELECT", "DELETE", "INSERT", "UPDATE", "UPDATE", "COMMIT"]
    )


def test_what_is_written_down_of_a_permit_that_is_passed_on_is_one_step(houses: list[FileHouse]) -> None:
    """For who reads the writes in their order, as `proof` does: nobody is passed, and no ticket is lost."""
    house = houses[0]
    with closing(sqlite3.connect(house.path)) as connection:
        for statement in audit.statements("sqlite"):
            connection.execute(statement)
    semaphore(*FULL, waiters=(ONE, ONE))(house)
    for number in (1, 2):
        house.release(f"a-{number}", 101.0, token=99_999_999 + number)
    found = Findings()
    replay = Replay(found, Asked([]), Clocks([], [], []), one_writer=True, claim=5_000_000)
    replay.read(audit.read(f"sqlite:///{house.path}"))
    verdict = found.verdict()
    assert verdict.checked[rules.NOT_PASSED.name] == 2
    told = {each.rule for each in verdict.violations}
    # Nobody's requests were recorded, so there is more to be found.
    assert not told & {rule.name for rule in (rules.NOT_PASSED, rules.KEPT, rules.ADDS_UP)}, told
