"""Where SQLite keeps what: a plain hold that is the only one in the lock's row, all others in their table."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.family import Terms
from holdfast.stores.base import StoreOptions
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.conformance import CLIENT
from holdfast.testing.conformance.asker import KEY, OPERATION, SHARED, Asker, permits


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Asker]:
    store = SQLiteStore(tmp_path / "locks.db", StoreOptions(CLIENT))
    store.open()
    yield Asker(store)
    store.close()


@pytest.fixture
def row(tmp_path: Path):
    """Return a function that reads some columns of the lock's row."""

    def read(*columns: str) -> tuple[Any, ...]:
        connection = sqlite3.connect(tmp_path / "locks.db")
        try:
            return connection.execute(
                f"SELECT {', '.join(columns)} FROM holdfast_locks WHERE lock_key = ?", (KEY,)
            ).fetchone()
        finally:
            connection.close()

    return read


def test_a_plain_hold_is_in_the_row(ask: Asker, row):
    ask.take("a-1", now=100.0)
    assert row("attempt", "holds", "notes") == ("a-1", 0, None)


@pytest.mark.parametrize("terms", [SHARED, OPERATION, permits(2), Terms(delay=1.0)])
def test_any_other_is_in_the_table(ask: Asker, row, terms):
    ask.take("a-1", now=100.0, terms=terms)
    assert row("attempt", "holds") == (None, 1)


def test_the_last_hold_of_a_lease_that_was_entered_twice_is_in_the_row_again(ask: Asker, row):
    """So it is renewed and released by one statement, as if it had never been entered twice."""
    token = ask.take("a-1", owner="ann", now=100.0).token
    ask.take("a-2", owner="ann", now=101.0)
    assert row("attempt", "holds") == (None, 2)
    ask.release("a-1", token, now=102.0)
    assert row("attempt", "holds", "token") == ("a-2", 0, token)


def test_a_lock_that_is_shut_has_an_owner_and_no_hold(ask: Asker, row):
    """Then no fast path takes it."""
    ask.take("a-1", owner="ann", now=100.0, ttl=10.0, terms=Terms(delay=5.0))
    ask.queue("b-1", now=112.0)
    assert row("owner", "attempt", "holds", "expires_at") == ("ann", None, 0, 115_000_000)


def test_with_several_leases_the_row_is_about_the_first_and_the_longest(ask: Asker, row):
    ask.take("a-1", owner="ann", now=100.0, ttl=10.0, terms=SHARED)
    last = ask.take("b-1", owner="bob", now=101.0, ttl=20.0, terms=SHARED).token
    assert row("owner", "token", "expires_at", "holds") == ("ann", last, 121_000_000, 2)


def test_nothing_is_noted_of_a_lock_that_is_free_again(ask: Asker, row):
    token = ask.take("a-1", now=100.0, terms=SHARED).token
    ask.release("a-1", token, now=101.0)
    assert row("owner", "attempt", "holds", "notes") == (None, None, 0, None)
