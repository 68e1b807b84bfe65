"""Fast joins and hand-overs of semaphores on MariaDB leave exactly what the rules leave, and tell the same.

Two stores are put into the same situations, which are in `situations`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.core.data import replace
from holdfast.core.events import HistoryLevel
from holdfast.core.family import PLAIN
from holdfast.core.requests import (
    Acquire,
    Client,
    Granted,
    NotHeld,
    Queued,
    Release,
    Released,
    Signal,
    Withdraw,
)
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.mysql.schema import SQL
from holdfast.stores.mysql.store import MySQLStore
from holdfast.testing.conformance import CLIENT, OTHER_CLIENT
from holdfast.testing.conformance.asker import KEY, permits
from tests.conformance.situations import (
    ASKED,
    RELEASES,
    SEMAPHORES,
    House,
    compare_joins_of_semaphores,
    compare_releases_of_permits,
)
from tests.conformance.test_mysql_blocks import SOON, sent, store
from tests.conformance.test_mysql_rows import in_thread, leave_in_the_middle, wait_for_waiter
from tests.extent import first

__all__ = ["sent", "store"]  # fixtures
PREFIXES: dict[HistoryLevel, str] = {"notable": "fast_", "all": "ruled_"}


class ServerHouse(House):
    """Tables of its own, which are empty."""

    store: MySQLStore

    def __init__(self, url: str, level: HistoryLevel) -> None:
        self._prefix = PREFIXES[level]
        # Who listens may tell of something twice.
        store = open_store(f"{url}&signals=no&prefix={self._prefix}", StoreOptions(CLIENT, level))
        assert isinstance(store, MySQLStore)
        self.store = store
        self.store.open()
        tables = "locks", "holds", "tickets", "ended"
        self._run(f"BEGIN; {'; '.join(f'DELETE FROM {self._prefix}{table}' for table in tables)}; COMMIT")
        self.heard = []
        self.store.listen(self.heard.append)

    def read(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        table = table.replace("holdfast_", self._prefix)
        return self._run(f"SELECT {columns} FROM {table} ORDER BY 1, 2")

    def _run(self, text: str) -> list[tuple[Any, ...]]:
        return self.store.sessions.use(lambda session: session.script(text))


@pytest.fixture(scope="module")
def url(mariadb_database: tuple[str, Any]) -> Iterator[str]:
    """Where both have their tables."""
    made = [
        open_store(f"{mariadb_database[0]}&prefix={prefix}", StoreOptions(CLIENT))
        for prefix in PREFIXES.values()
    ]
    for each in made:
        each.open()
    yield mariadb_database[0]
    for each in made:
        each.tables().drop()
        each.close()


@pytest.fixture
def houses(url: str) -> Iterator[list[ServerHouse]]:
    made = [ServerHouse(url, level) for level in PREFIXES]
    yield made
    for house in made:
        house.store.close()


@pytest.mark.parametrize("asked", first(2, ASKED))
@pytest.mark.parametrize("situation", SEMAPHORES)
def test_joining_a_semaphore_does_what_the_rules_do(
    houses: list[ServerHouse], situation: str, asked: str
) -> None:
    compare_joins_of_semaphores(houses, situation, asked)


@pytest.mark.parametrize("options", first(1, RELEASES))
@pytest.mark.parametrize("releases", ["a-1", "a-2"])
@pytest.mark.parametrize("situation", SEMAPHORES)
def test_releasing_a_permit_does_what_the_rules_do(
    houses: list[ServerHouse], situation: str, releases: str, options: dict[str, Any]
) -> None:
    compare_releases_of_permits(houses, situation, releases, options)


def take(store: MySQLStore, attempt: str, client: Client = CLIENT, **options: Any) -> Any:
    options = {"terms": permits(2), "wait": True, "claim": 5.0} | options
    return store.execute(Acquire(KEY, attempt, attempt, 60.0, client, **options))


def fill(store: MySQLStore) -> list[int]:
    """Take all permits, and let it be known that some wait; return the tokens."""
    tokens = [take(store, f"a-{number}").token for number in (1, 2)]
    assert isinstance(take(store, "warm-up"), Queued)
    store.execute(Withdraw(KEY, "warm-up"))
    return tokens


def test_a_join_and_a_hand_over_are_one_statement_each(mysql_store: MySQLStore, sent: list[str]) -> None:
    token, _ = fill(mysql_store)
    sent.clear()
    assert isinstance(take(mysql_store, "b-1"), Queued)
    assert mysql_store.execute(Release(KEY, "a-1", token)) == Released(0, "b-1")
    ours = [text.split()[:2] for text in sent if "holdfast_hear" not in text]
    assert ours == [
        ["PREPARE", "holdfast_join_full"],
        ["EXECUTE", "holdfast_join_full"],
        ["PREPARE", "holdfast_pass_permit"],
        ["EXECUTE", "holdfast_pass_permit"],
    ]


def test_blocks_and_texts_do_the_same(store: MySQLStore) -> None:
    tokens = fill(store)
    for place, attempt in enumerate(("b-1", "c-1"), 1):
        queued = take(store, attempt)
        assert (queued.position, queued.holder.owner, queued.holder.token) == (place, "a-1", tokens[0])
        assert queued.expires_in == pytest.approx(60.0, abs=5.0)
    assert store.execute(Release(KEY, "a-1", tokens[0])) == Released(0, "b-1")
    assert store.execute(Release(KEY, "a-1", tokens[0])) == NotHeld("already")
    granted = take(store, "b-1")
    assert isinstance(granted, Granted)
    assert granted.token > tokens[1]
    assert store.execute(Release(KEY, "a-2", tokens[1])) == Released(0, "c-1")


def test_a_permit_is_passed_on_by_its_token_alone(mysql_store: MySQLStore) -> None:
    """P5: a late copy is not about the lease that the attempt has now."""
    tokens = fill(mysql_store)
    assert isinstance(take(mysql_store, "b-1"), Queued)
    assert isinstance(mysql_store.execute(Release(KEY, "a-1", tokens[0] - 1)), NotHeld)
    assert mysql_store.execute(Release(KEY, "a-1", tokens[0])) == Released(0, "b-1")


def test_who_fences_the_row_is_left_to_the_rules(mysql_store: MySQLStore, mysql_sessions: Any) -> None:
    """P4: a hand-over changes the token, and would wait for as long as the fence lasts."""
    tokens = fill(mysql_store)
    assert isinstance(take(mysql_store, "b-1"), Queued)
    fencing = mysql_sessions()
    fencing.send([("begin", {}), ("fence", {"token": tokens[1], "key": KEY})])
    assert mysql_store.execute(Release(KEY, "a-1", tokens[0])) == Released(0, None)
    fencing.roll_back()
    assert isinstance(take(mysql_store, "b-1"), Granted)


def test_who_ends_while_it_waits_for_the_row_does_not_join(
    mysql_store: MySQLStore, mysql_sessions: Any, mariadb_server: Any
) -> None:
    """P6: what Withdraw has written while we waited is read after the wait, and not before."""
    fill(mysql_store)
    withdrawing = mysql_sessions()
    withdrawing.send([("begin", {}), ("lock_row", {"key": KEY})])
    thread, results = in_thread(lambda: take(mysql_store, "x-1"))
    wait_for_waiter(mariadb_server)
    ended = {"key": KEY, "attempt": "x-1", "why": "withdrawn", "by": None, "reason": None, "until_at": 2**62}
    withdrawing.send([("write_ended", ended), ("commit", {})], commits=True)
    thread.join()
    assert results == [NotHeld("already")]


def test_the_clock_is_read_after_the_wait(
    mysql_store: MySQLStore, mysql_sessions: Any, mariadb_server: Any
) -> None:
    """P8: a permit is not handed to who has died meanwhile."""
    tokens = fill(mysql_store)
    assert isinstance(take(mysql_store, "b-1", patience=0.3), Queued)
    assert isinstance(take(mysql_store, "c-1"), Queued)
    other = mysql_sessions()
    other.send([("begin", {}), ("lock_row", {"key": KEY})])
    thread, results = in_thread(lambda: mysql_store.execute(Release(KEY, "a-1", tokens[0])))
    wait_for_waiter(mariadb_server)
    time.sleep(0.4)
    other.roll_back()
    thread.join()
    assert results == [Released(0, "c-1")]


# Who waits in another process.


@pytest.mark.parametrize("home", ["", "/two"], ids=["a client", "a client of a lock server"])
def test_a_winner_elsewhere_and_the_next_head_are_told(store: MySQLStore, elsewhere: Any, home: str) -> None:
    """The head has to watch what was handed over, which ends sooner than its next heartbeat comes."""
    other, arrived = elsewhere
    client = replace(OTHER_CLIENT, instance=f"{OTHER_CLIENT.instance}{home}")
    tokens = fill(store)
    assert isinstance(take(other, "b-1", client, claim=3.0), Queued)
    assert isinstance(take(other, "c-1", client), Queued)
    store.execute(Release(KEY, "a-1", tokens[0]))
    told = {signal.kind: signal for signal in (arrived.get(timeout=SOON), arrived.get(timeout=SOON))}
    assert (told["granted"].attempt, told["granted"].to) == ("b-1", home[1:])
    granted = take(other, "b-1", client)
    assert (told["granted"].token, told["granted"].expires_in) == (granted.token, 3.0)
    assert (told["head"].attempt, told["head"].to, told["head"].expires_in) == ("c-1", home[1:], 3.0)


def test_a_head_elsewhere_is_told_although_the_winner_is_ours(store: MySQLStore, elsewhere: Any) -> None:
    other, arrived = elsewhere
    tokens = fill(store)
    assert isinstance(take(store, "b-1", claim=3.0), Queued)
    assert isinstance(take(other, "c-1", OTHER_CLIENT), Queued)
    store.execute(Release(KEY, "a-1", tokens[0]))
    assert arrived.get(timeout=SOON) == Signal("head", KEY, "c-1", 3.0)


@pytest.mark.parametrize("proved", [True, False])
def test_a_permit_whose_hand_over_only_a_row_shows_has_to_be_claimed(
    mysql_store: MySQLStore, mysql_sessions: Any, elsewhere: Any, proved: bool
) -> None:
    """P1: InnoDB shows a commit before it is on the disk, and a power cut may still take it away."""
    other, arrived = elsewhere
    fill(mysql_store)
    assert isinstance(take(other, "b-1", OTHER_CLIENT), Queued)
    session = mysql_sessions()
    if proved:
        table = f"concat(database(), '.holdfast_locks ', CAST('{KEY}' AS BINARY))"
        session.script(f"SET @proof = concat('holdfast ', 77000000, ' ', left(sha1({table}), 32))")
        assert session.script("SELECT GET_LOCK(@proof, 0)") == [(1,)]
    session.script(
        "INSERT INTO holdfast_signals (instance, kind, lock_key, attempt, expires_in, at)"
        f" VALUES ('{OTHER_CLIENT.instance}', 'granted', '{KEY}', 'b-1', 3000000, 77000000)"
    )
    session.fetch("wake", {"instance": OTHER_CLIENT.instance})
    hint = Signal("granted", KEY, "b-1")
    told = replace(hint, expires_in=3.0, token=77_000_000, at=77.0)
    assert arrived.get(timeout=SOON) == (told if proved else hint)


def test_nobody_is_woken_and_nothing_proved_before_the_commit() -> None:
    before, after = SQL["pass_permit"].split("COMMIT;")
    assert "KILL" not in before
    assert "GET_LOCK" not in before
    assert after.index("GET_LOCK") < after.index("KILL QUERY")


def test_a_lease_that_was_entered_twice_is_no_permit(mysql_store: MySQLStore, mysql_sessions: Any) -> None:
    """Its holds have no terms, and a key that has no notes has none either."""
    lease = mysql_store.execute(Acquire(KEY, "a-1", "ann", 60.0, CLIENT))
    assert mysql_store.execute(Acquire(KEY, "a-2", "ann", 60.0, CLIENT)).token == lease.token
    assert isinstance(take(mysql_store, "b-1", terms=PLAIN), Queued)
    session = mysql_sessions()
    session.script(f"SET @holdfast_token = {lease.token}")  # of what this connection has handed over
    asked = {"key": KEY, "attempt": "a-1", "token": lease.token, "instance": "i", "now": None}
    assert session.fetch("pass_permit", asked) == []


@pytest.mark.parametrize("prepares", [False, True], ids=["texts", "block"])
def test_a_permit_whose_client_leaves_in_the_middle_is_passed_on_as_a_whole(
    mysql_store: MySQLStore, mysql_sessions: Any, mariadb_server: Any, prepares: bool
) -> None:
    token, _ = fill(mysql_store)
    for attempt in ("b-1", "c-1"):
        assert isinstance(take(mysql_store, attempt), Queued)
    rows = leave_in_the_middle(mysql_sessions, mariadb_server, prepares, "pass_permit", KEY, token)
    assert rows in ([("a-2,b-1", 1, "c-1")], [("a-1,a-2", 2, "b-1,c-1")])
