"""Databases of PostgreSQL that are not in UTF-8: what they have no character for is refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from holdfast import errors
from holdfast.core.requests import Acquire, Granted
from holdfast.stores import open_store
from holdfast.stores.base import Store, StoreOptions
from holdfast.stores.postgres.session import PostgresSession
from holdfast.testing.conformance import CLIENT, Asker
from tests.e2e.support import holdfast
from tests.servers import PostgresServer
from tests.servers.postgres import OWNER


def database(server: PostgresServer, encoding: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    server.execute(
        f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"
    )
    url = server.url(name)
    yield url
    server.drop_database(url)


@pytest.fixture
def latin1(postgres_server: PostgresServer) -> Iterator[str]:
    yield from database(postgres_server, "LATIN1")


@pytest.fixture
def ascii_only(postgres_server: PostgresServer) -> Iterator[str]:
    yield from database(postgres_server, "SQL_ASCII")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def opened(url: str, stack: ExitStack) -> Store:
    store = open_store(f"{url}?apply_schema=yes&signals=no", StoreOptions(CLIENT))
    store.open()
    stack.callback(store.close)
    return store


def take_and_renew(store: Store, key: str) -> str:
    granted = store.execute(Acquire(key, "a-1", "me", 60.0, CLIENT))
    assert isinstance(granted, Granted)
    return Asker(store).renew("a-1", granted.token, now=None, key=key, ttl=120.0).outcome


def test_what_latin1_has_can_be_a_name_and_all_else_is_refused(latin1: str, stack: ExitStack) -> None:
    store = opened(latin1, stack)
    assert take_and_renew(store, "schlüssel") == "renewed"
    with pytest.raises(errors.StoreMisconfigured, match="ENCODING 'UTF8'"):
        store.execute(Acquire("钥匙", "a-1", "me", 60.0, CLIENT))
    assert take_and_renew(store, "nightly") == "renewed"


def test_without_an_encoding_only_ascii_can_be_a_name(ascii_only: str, stack: ExitStack) -> None:
    """A grant of any other could not be renewed: JSON of it is refused by the server."""
    store = opened(ascii_only, stack)
    with pytest.raises(errors.StoreMisconfigured, match="schlüssel"):
        store.execute(Acquire("schlüssel", "a-1", "me", 60.0, CLIENT))
    assert take_and_renew(store, "nightly") == "renewed"


def test_what_cannot_work_is_said_when_the_tables_are_made_and_by_the_doctor(latin1: str) -> None:
    made = holdfast("schema", "apply", latin1)
    assert (made.returncode, "encoding LATIN1" in made.stderr) == (0, True)
    looked = holdfast("doctor", latin1)
    assert (looked.returncode, "encoding LATIN1" in looked.stdout) == (0, True)


def test_nothing_is_said_of_a_database_in_utf8(postgres_url: str) -> None:
    assert "encoding" not in holdfast("schema", "apply", postgres_url).stderr


@pytest.mark.parametrize("good_reads", [0, 1])
def test_a_connection_that_is_cut_as_soon_as_it_is_made_says_that_the_store_is_unavailable(
    postgres_locks: str, monkeypatch: pytest.MonkeyPatch, good_reads: int
) -> None:
    """Nothing was asked yet, so it is tried again: an error of the driver's would end the caller."""
    reads = iter(["UTF8"] * good_reads)  # one when the session is made

    def closed(_: PostgresSession) -> str:
        for encoding in reads:
            return encoding
        raise psycopg.OperationalError("the connection is closed")

    store = open_store(postgres_locks, StoreOptions(CLIENT))
    with monkeypatch.context() as patch:
        patch.setattr(PostgresSession, "encoding", property(closed))
        with pytest.raises(errors.StoreUnavailable, match="the connection is closed"):
            store.open()
    store.open()
    store.close()
