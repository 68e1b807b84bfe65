"""Joins, hand-overs and a listener's turns on MariaDB: one prepared block each, or the same as texts."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import errors
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
from holdfast.stores.mysql.schema import SQL
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.mysql.statement import BLOCKS, Statement
from holdfast.stores.mysql.store import MySQLStore
from holdfast.testing.conformance import CLIENT, OTHER_CLIENT
from tests.conformance.test_mysql_rows import in_thread, take, wait_for_waiter

SOON = 10.0
CANNOT = (
    "PREPARE holdfast_none FROM 'EXECUTE holdfast_none'"  # error 1295, as where blocks cannot be prepared
)


def wait_for(store: MySQLStore, attempt: str, client: Client = CLIENT, **given: Any) -> Any:
    return store.execute(Acquire("k", attempt, attempt, 60.0, client, wait=True, **given))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of all round trips."""
    texts: list[str] = []
    trip = MySQLSession._trip

    def spy(session: MySQLSession, todo: list[str], *args: Any, **options: Any) -> Any:
        texts.extend(todo)
        return trip(session, todo, *args, **options)

    monkeypatch.setattr(MySQLSession, "_trip", spy)
    return texts


@pytest.fixture(params=["blocks", "texts"])
def store(
    mysql_store: MySQLStore, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> MySQLStore:
    if request.param == "texts":
        monkeypatch.setattr(Statement, "preparation", lambda *_: CANNOT)
    return mysql_store


def test_a_hand_over_is_three_statements(mysql_store, sent):
    """The join, the hand-over, and what the listener asks for."""
    token = take(mysql_store).token
    assert isinstance(wait_for(mysql_store, "warm-up"), Queued)
    mysql_store.execute(Withdraw("k", "warm-up"))
    sent.clear()
    assert isinstance(wait_for(mysql_store, "b-1"), Queued)
    assert mysql_store.execute(Release("k", "a-1", token)) == Released(0, "b-1")
    ours = [text for text in sent if "holdfast_hear" not in text]
    assert [text.split()[1] for text in ours if text.startswith("EXECUTE")] == [
        "holdfast_join_queue",
        "holdfast_hand_over",
    ]
    assert len(ours) == 3  # the second is prepared here


def test_blocks_and_texts_do_the_same(store):
    token = take(store).token
    for place, attempt in enumerate(("b-1", "c-1", "d-1"), 1):
        queued = wait_for(store, attempt, claim=5.0)
        assert (queued.position, queued.holder.owner, queued.holder.token) == (place, "a-1", token)
        assert queued.expires_in == pytest.approx(60.0, abs=5.0)
        assert queued.at == pytest.approx(time.time(), abs=60.0)
    assert wait_for(store, "c-1").position == 2  # asked again, it has its ticket
    assert store.execute(Release("k", "a-1", token)) == Released(0, "b-1")
    assert isinstance(store.execute(Release("k", "a-1", token)), NotHeld)
    granted = wait_for(store, "b-1")
    assert isinstance(granted, Granted)
    assert granted.token > token
    assert store.execute(Release("k", "b-1", granted.token)) == Released(0, "c-1")


def test_a_statement_that_the_server_has_forgotten_is_sent_as_a_text(
    mysql_sessions: Callable[[], MySQLSession],
):
    session = mysql_sessions()
    asked = {"instance": "nobody", "told": "", "awaited": "somebody", "seconds": 0}
    assert len(session.fetch("hear", asked)) == 1
    session.script("DEALLOCATE PREPARE holdfast_hear")
    assert len(session.fetch("hear", asked)) == 1


@pytest.mark.parametrize("prepares", [True, False], ids=["a block", "a text"])
def test_what_is_interrupted_may_have_committed(mysql_store, mysql_sessions, mariadb_server, prepares):
    """P6: where it was is not for the client to guess."""
    token = take(mysql_store).token
    assert isinstance(wait_for(mysql_store, "b-1"), Queued)
    other, handing = mysql_sessions(), mysql_sessions()
    handing._prepares = prepares
    ((number,),) = handing.script("SELECT connection_id()")
    other.send([("begin", {}), ("lock_row", {"key": "k"})])
    asked = {"key": "k", "attempt": "a-1", "token": token, "instance": "i", "now": None}
    thread, results = in_thread(lambda: handing.fetch("hand_over", asked))
    wait_for_waiter(mariadb_server)
    mariadb_server.execute(f"KILL QUERY {number}")
    thread.join()
    other.send([("rollback", {})])
    assert isinstance(results[0], errors.OutcomeUnknown)
    handing.roll_back()
    assert handing.is_alive()
    assert mysql_store.execute(Release("k", "a-1", token)) == Released(0, "b-1")


def test_who_ends_while_it_waits_for_the_row_does_not_join(mysql_store, mysql_sessions, mariadb_server):
    """P6: what Withdraw has written while we waited is read after the wait, and not before."""
    take(mysql_store)
    withdrawing = mysql_sessions()
    withdrawing.send([("begin", {}), ("lock_row", {"key": "k"})])
    thread, results = in_thread(lambda: wait_for(mysql_store, "x-1"))
    wait_for_waiter(mariadb_server)
    ended = {"key": "k", "attempt": "x-1", "why": "withdrawn", "by": None, "reason": None, "until_at": 2**62}
    withdrawing.send([("write_ended", ended), ("commit", {})], commits=True)
    thread.join()
    assert results == [NotHeld("already")]


def test_a_dead_head_is_left_to_the_rules(mysql_store):
    """They remove it; otherwise it would keep its place before those who are alive."""
    take(mysql_store)
    assert wait_for(mysql_store, "b-1", patience=0.05).position == 1
    time.sleep(0.1)
    assert wait_for(mysql_store, "c-1").position == 1


def test_who_joins_a_queue_looks_for_a_circle_after_the_commit():
    """Two who join each other's queues at once would not see each other's tickets before."""
    before, after = SQL["join_queue"].split("COMMIT;")
    assert "by_owner" not in before
    assert after.count("by_owner") == 2


def test_an_owner_that_others_wait_for_is_looked_at(mysql_store):
    """And one that holds nothing is not."""
    for key, owner in (("k", "one"), ("l", "two")):
        mysql_store.execute(Acquire(key, f"{owner}-a", owner, 60.0, CLIENT))

    def join(key: str, owner: str) -> tuple[Queued, bool]:
        asked = Acquire(key, f"{owner}-{key}", owner, 60.0, CLIENT, wait=True)
        found = mysql_store.dialect.queue(asked)
        assert found is not None
        return found

    assert not join("k", "three")[1]
    assert not join("k", "two")[1]
    assert join("l", "one")[1]


# A winner in another process: see Entering by the hand-over in the protocol.


def test_a_winner_is_told_its_token_once_the_hand_over_is_on_the_disk(store, elsewhere):
    other, arrived = elsewhere
    token = take(store).token
    queued = wait_for(other, "b-1", OTHER_CLIENT, claim=7.0)
    store.execute(Release("k", "a-1", token))
    signal = arrived.get(timeout=SOON)
    assert (signal.kind, signal.attempt, signal.expires_in) == ("granted", "b-1", 7.0)
    granted = wait_for(other, "b-1", OTHER_CLIENT)
    assert signal.token == granted.token
    assert signal.at >= queued.at


def test_a_hand_over_that_only_its_row_shows_has_to_be_claimed(mysql_store, mysql_sessions, elsewhere):
    """P1: InnoDB shows a commit before it is on the disk, and a power cut may still take it away."""
    other, arrived = elsewhere
    take(mysql_store)
    assert isinstance(wait_for(other, "b-1", OTHER_CLIENT), Queued)
    session = mysql_sessions()
    session.script(
        "UPDATE holdfast_locks SET token = token + 1, owner = 'b-1', attempt = 'b-1', claimed = 0,"
        f" instance = '{OTHER_CLIENT.instance}', waiters = 0 WHERE lock_key = 'k';"
        "DELETE FROM holdfast_tickets"
    )
    session.fetch("wake", {"instance": OTHER_CLIENT.instance})
    assert arrived.get(timeout=SOON) == Signal("granted", "k", "b-1")


def test_the_proof_is_taken_after_the_commit():
    before, after = SQL["hand_over"].split("COMMIT;")
    assert "GET_LOCK" not in before
    assert after.index("GET_LOCK") < after.index("KILL QUERY")


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_answers_after_its_commit(name):
    """So what a connection has read of it is done."""
    *_, after = SQL[name].rpartition("COMMIT;\n")
    assert Statement(SQL[name], is_block=True).answers == Statement(after, is_block=True).answers
