"""What InnoDB locks, and for how long: facts that the MySQL store is built on, with two real connections."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.requests import (
    Acquire,
    Busy,
    Granted,
    Queued,
    Release,
    Released,
    Renew,
    RenewLease,
    Withdraw,
    Withdrawn,
)
from holdfast.errors import OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.mysql.statement import Statement
from holdfast.stores.sql.transactions.session import Batch, RowLocked, Transaction
from holdfast.testing.conformance import CLIENT
from tests.servers.mariadb import MariaDBServer

Connect = Callable[[], MySQLSession]


def take(store, key: str = "k", attempt: str = "a-1", ttl: float = 60.0) -> Granted:
    answer = store.execute(Acquire(key, attempt, attempt, ttl, CLIENT))
    assert isinstance(answer, Granted), answer
    return answer


def free(store, key: str = "k") -> int:
    """Have a row for a key that nobody holds; return its token."""
    token = take(store, key).token
    assert store.execute(Release(key, "a-1", token)) == Released()
    return token


def parameters(attempt: str, key: str = "k") -> dict[str, Any]:
    return {
        "key": key,
        "attempt": attempt,
        "owner": attempt,
        "ttl": 60_000_000,
        "instance": "i-1",
        "host": "alpha",
        "pid": 1,
        "now": None,
    }


def fence(session: MySQLSession, token: int, key: str = "k", isolation: str = "READ COMMITTED") -> None:
    session.script(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
    session.send([("begin", {})])
    assert session.fetch("fence", {"key": key, "token": token}) == [(1,)]
    session._in_transaction = True


def status(server: MariaDBServer, name: str) -> int:
    ((_, value),) = server.execute(f"SHOW GLOBAL STATUS LIKE '{name}'")
    return int(value)


def wait_for_waiter(server: MariaDBServer) -> None:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        # Not from innodb_trx: that is a copy, which is not renewed while it is read every few milliseconds.
        if status(server, "Innodb_row_lock_current_waits"):
            return
        time.sleep(0.005)
    raise AssertionError("nobody waits for a row")


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except StoreError as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def test_an_attempt_that_ends_while_it_waits_for_the_row_is_not_granted(
    mysql_store, mysql_sessions: Connect, mariadb_server
):
    """P6: what Withdraw has written while we waited is read after the wait, and not before."""
    free(mysql_store)
    withdrawing, acquiring = mysql_sessions(), mysql_sessions()
    withdrawing.send([("begin", {}), ("lock_row", {"key": "k"})])
    thread, results = in_thread(lambda: acquiring.fetch("acquire", parameters("x-1")))
    wait_for_waiter(mariadb_server)
    ended = {"key": "k", "attempt": "x-1", "why": "withdrawn", "by": None, "reason": None, "until_at": 2**62}
    withdrawing.send([("write_ended", ended), ("commit", {})], commits=True)
    thread.join()
    assert results == [[]]
    assert acquiring.fetch("acquire", parameters("y-1"))


def test_a_real_withdrawal_beats_an_acquire_that_waits_for_it(mysql_store, mysql_sessions, mariadb_server):
    """P6, with the store's own requests: a row is held by a third for as long as both come to wait."""
    token = free(mysql_store)
    third = mysql_sessions()
    third.send([("begin", {}), ("lock_row", {"key": "k"})])
    withdrawing, _ = in_thread(lambda: mysql_store.execute(Withdraw("k", "x-1")))
    wait_for_waiter(mariadb_server)
    acquiring, results = in_thread(lambda: mysql_sessions().fetch("acquire", parameters("x-1")))
    time.sleep(0.1)
    third.roll_back()
    withdrawing.join()
    acquiring.join()
    assert results == [[]]
    assert mysql_store.execute(Acquire("k", "y-1", "y-1", 10.0, CLIENT)).token > token


def test_a_fast_hand_over_waits_for_whoever_has_the_row(mysql_store, mysql_sessions, mariadb_server):
    """MariaDB does not lock a table of which nothing is read: who met it saw a fence that was none."""
    token = take(mysql_store).token
    assert isinstance(mysql_store.execute(Acquire("k", "w-1", "w-1", 60.0, CLIENT, wait=True)), Queued)
    other, handing = mysql_sessions(), mysql_sessions()
    other.send([("begin", {}), ("lock_row", {"key": "k"})])
    asked = {"key": "k", "attempt": "a-1", "token": token, "instance": CLIENT.instance, "now": None}
    thread, results = in_thread(lambda: handing.fetch("hand_over", asked))
    wait_for_waiter(mariadb_server)
    assert other.send([("probe_pin", {"key": "k"})])[0]  # nobody has fenced it
    other.send([("rollback", {})])
    thread.join()
    ((winner,),) = results[0]
    assert winner.endswith("\nw-1")


def test_the_clock_is_read_after_the_wait(mysql_store, mysql_sessions, mariadb_server):
    """A lease must not be born with less than its ttl left (trap 2)."""
    free(mysql_store)
    other, acquiring = mysql_sessions(), mysql_sessions()
    other.send([("begin", {}), ("lock_row", {"key": "k"})])
    thread, results = in_thread(lambda: acquiring.fetch("acquire", parameters("x-1")))
    wait_for_waiter(mariadb_server)
    time.sleep(0.5)
    ((released_at,),) = other.fetch("now", {"now": None})
    other.send([("commit", {})], commits=True)
    thread.join()
    ((token,),) = results[0]
    ((expires_at,),) = other.script("SELECT expires_at FROM holdfast_locks WHERE lock_key = 'k'")
    assert token >= released_at
    assert expires_at >= released_at + 60_000_000


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_while_fenced_renewing_and_queueing_pass_and_a_grant_does_not(mysql_store, mysql_sessions, isolation):
    """P4: the fence has a record of by_token, the others change the row, a grant would change both."""
    fencing, other = mysql_sessions(), mysql_sessions()
    other.script(
        "REPLACE INTO holdfast_locks SET lock_key = '', token = 1, expires_at = 0, granted_at = 0,"
        " instance = '', host = '', pid = 0"
    )  # from the schema, but other tests empty the table
    token = take(mysql_store).token
    fence(fencing, token, isolation=isolation)
    renewed = mysql_store.execute(Renew((RenewLease("k", "a-1", token, 90.0),)))
    assert renewed.leases[0].outcome == "renewed"
    assert isinstance(mysql_store.execute(Acquire("k", "b-1", "b-1", 10.0, CLIENT, wait=True)), Queued)
    assert mysql_store.execute(Withdraw("k", "b-1")) == Withdrawn()
    for key in ("a", "j", "k0", "l", "z"):  # new rows on both sides
        take(mysql_store, key)
    mysql_store.execute(Withdraw("k1", "x-1"))  # makes a row that was never granted
    rows = other.send([("begin", {}), ("lock_row", {"key": "k"}), ("probe_pin", {"key": "k"})])
    assert (rows[1], rows[2]) == ([(1,)], [])
    other.roll_back()
    assert mysql_store.execute(Release("k", "a-1", token)) == Released()
    with pytest.raises(RowLocked):
        other.fetch("acquire", parameters("c-1"))
    fencing.roll_back()
    rows = other.send([("begin", {}), ("lock_row", {"key": "k"}), ("probe_pin", {"key": "k"})])
    assert (rows[1], rows[2]) == ([(1,)], [(1,)])
    other.roll_back()
    assert take(mysql_store, attempt="c-2").token > token


def test_a_fenced_lease_is_not_taken_over_and_nobody_hangs(mysql_store, mysql_sessions, mariadb_server):
    """P4: its end has come, but the transaction may still write under its token. Who asks does not wait."""
    token = take(mysql_store, ttl=0.05).token
    fencing = mysql_sessions()
    fence(fencing, token)
    time.sleep(0.1)
    waits = status(mariadb_server, "Innodb_row_lock_waits")
    answer = mysql_store.execute(Acquire("k", "b-1", "b-1", 10.0, CLIENT))
    assert isinstance(answer, Busy)
    assert status(mariadb_server, "Innodb_row_lock_waits") == waits
    fencing.roll_back()
    assert mysql_store.execute(Acquire("k", "b-1", "b-1", 10.0, CLIENT)).token > token


def test_a_fence_and_a_grant_never_deadlock(mysql_store, mysql_sessions):
    """A grant has the row and waits for the record, a fence has the record and asks for nothing more."""
    token = free(mysql_store)
    fencing, acquiring = mysql_sessions(), mysql_sessions()
    fence(fencing, token)
    thread, results = in_thread(lambda: acquiring.fetch("acquire", parameters("b-1")))
    time.sleep(0.1)
    assert fencing.fetch("fence_seen", {"key": "k", "token": token}) == [(1,)]
    fencing._in_transaction = True
    fencing.roll_back()
    thread.join()
    assert results[0][0][0] > token


def test_a_batch_of_renewals_does_not_wait_for_a_row_that_is_locked(mysql_store, mysql_sessions):
    """The others are renewed at once; that one is asked for by itself."""
    tokens = {key: take(mysql_store, key).token for key in ("r1", "r2", "r3")}
    other, renewing = mysql_sessions(), mysql_sessions()
    other.send([("begin", {}), ("lock_row", {"key": "r2"})])
    leases = [
        {"place": place, "key": key, "attempt": "a-1", "token": token, "ttl": 90_000_000}
        for place, (key, token) in enumerate(tokens.items())
    ]
    rows = renewing.fetch("renew", {"leases": json.dumps(leases), "now": None})
    assert sorted(rows) == [(0,), (2,)]
    other.roll_back()
    assert renewing.fetch("renew", {"leases": json.dumps(leases), "now": None}) == [(0,), (1,), (2,)]


def test_a_sweep_passes_by_what_is_locked_or_fenced(mysql_store, mysql_sessions):
    tokens = {key: free(mysql_store, key) for key in ("s1", "s2", "s3")}
    locking, fencing, sweeping = mysql_sessions(), mysql_sessions(), mysql_sessions()
    locking.send([("begin", {}), ("lock_row", {"key": "s1"})])
    fence(fencing, tokens["s2"], "s2")
    gone = sweeping.fetch("delete_idle", {"keys": json.dumps(list(tokens)), "idle_since": 2**62})
    assert len(gone) == 1
    assert sweeping.script("SELECT lock_key FROM holdfast_locks WHERE lock_key LIKE 's_'") == [
        ("s1",),
        ("s2",),
    ]
    locking.roll_back()
    fencing.roll_back()


def test_two_who_make_the_same_row_do_not_fail(mysql_store):
    """Trap 5: at the first use of a key, one inserts it and all others wait for that and see it."""
    for number in range(20):
        key = f"new-{number}"
        barrier = threading.Barrier(6)

        def ask(attempt: str, key: str = key, barrier: threading.Barrier = barrier) -> object:
            barrier.wait()
            wait = attempt.endswith(("1", "2"))
            if attempt.endswith("3"):
                return mysql_store.execute(Withdraw(key, attempt))
            return mysql_store.execute(Acquire(key, attempt, attempt, 10.0, CLIENT, wait=wait))

        running = [in_thread(lambda attempt=f"t-{n}": ask(attempt)) for n in range(6)]
        answers = []
        for thread, results in running:
            thread.join()
            answers += results
        assert sum(isinstance(answer, Granted) for answer in answers) == 1, answers
        assert not [answer for answer in answers if isinstance(answer, Exception)], answers


def test_a_row_that_is_made_between_locking_and_reading_is_locked_after_all(mysql_store, mysql_sessions):
    """Found by the test above: a decision on a row that was read but not locked overwrote a ticket."""
    ours, theirs = mysql_sessions(), mysql_sessions()

    class Slow:
        """Somebody else makes the row just before we read it."""

        def send(self, batch: Batch, /, *, commits: bool = False):
            if batch[-1][0] != "read_lock" or theirs.fetch("inspect", {"key": "k"}):
                return ours.send(batch, commits=commits)
            before = ours.send(batch[:-1])
            assert theirs.fetch("acquire_new", parameters("b-1"))
            return [*before, *ours.send(batch[-1:])]

    run = Transaction(Slow(), "", create=True)
    assert run.lock("k", "a-1", None).lock.owner == "b-1"
    with pytest.raises(RowLocked):
        theirs.send([("begin", {}), ("lock_row", {"key": "k"})])
    ours.roll_back()


@pytest.mark.parametrize("wait", [False, True])
def test_a_row_that_cannot_be_made_answers_as_if_somebody_held_it(mysql_store, mysql_sessions, wait):
    """A caller's transaction at REPEATABLE READ may lock the gap into which it would go."""
    take(mysql_store, "z")
    other = mysql_sessions()
    other.script("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    other.send([("begin", {})])
    other.script("SELECT count(*) FROM holdfast_locks FOR UPDATE")
    answer = mysql_store.execute(Acquire("new", "a-1", "a-1", 10.0, CLIENT, wait=wait))
    assert isinstance(answer, Queued if wait else Busy)
    other.roll_back()
    assert isinstance(mysql_store.execute(Acquire("new", "a-1", "a-1", 10.0, CLIENT, wait=wait)), Granted)


def test_what_the_server_rolled_back_because_of_somebody_else_is_tried_again(mysql_store):
    """Deadlocks and the like: nobody is told of what goes well the second time."""
    tries: list[int] = []

    def work(session: MySQLSession) -> str:
        tries.append(1)
        if len(tries) == 1:
            session.script("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213")
        return "done"

    assert mysql_store.sessions.use(work) == "done"
    assert len(tries) == 2


@pytest.mark.parametrize("prepares", [False, True], ids=["texts", "block"])
def test_a_hand_over_whose_client_leaves_in_the_middle_is_done_as_a_whole(
    mysql_store, mysql_sessions, mariadb_server: MariaDBServer, prepares
):
    """Seen: ROW_COUNT() is -1 once an answer could not be sent, and a ticket that it decided about stayed."""
    token = take(mysql_store).token
    for attempt in ("b-1", "c-1"):
        assert isinstance(
            mysql_store.execute(Acquire("k", attempt, attempt, 60.0, CLIENT, wait=True)), Queued
        )
    rows = leave_in_the_middle(mysql_sessions, mariadb_server, prepares, "hand_over", "k", token)
    assert rows in ([("b-1", 1, "c-1")], [("a-1", 2, "b-1,c-1")])


def leave_in_the_middle(
    connect: Connect, server: MariaDBServer, prepares: bool, statement: str, key: str, token: int
) -> list[tuple]:
    """Begin to release the lease of a-1, and be killed; return who has the lock and who waits then."""
    leaver, other = connect(), connect()
    leaver._prepares = prepares
    other.script("CREATE TRIGGER slow BEFORE UPDATE ON holdfast_locks FOR EACH ROW DO SLEEP(1)")
    ((number,),) = leaver.script("SELECT connection_id()")

    def release() -> None:
        with pytest.raises(StoreError):
            leaver.fetch(
                statement, {"key": key, "attempt": "a-1", "token": token, "instance": "i", "now": None}
            )

    def seen(condition: str) -> bool:
        listed = f"SELECT 1 FROM information_schema.processlist WHERE id = {number} AND {condition}"
        return bool(server.execute(listed))

    thread = threading.Thread(target=release)
    thread.start()
    eventually(lambda: seen("state = 'User sleep'"))
    at_once = struct.pack("ii", 1, 0)  # without a goodbye, as a system closes for a process that was killed
    leaver._connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    leaver.interrupt()
    thread.join()
    eventually(lambda: not seen("true"))
    rows = other.script(
        "SELECT coalesce(attempt, (SELECT group_concat(attempt) FROM holdfast_holds)), waiters,"
        f" (SELECT group_concat(attempt) FROM holdfast_tickets) FROM holdfast_locks WHERE lock_key = '{key}'"
    )
    other.script("DROP TRIGGER slow")  # the database is used again
    return rows


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def audited(mysql_sessions: Connect):
    """Somebody's own triggers on our tables, as an audit or a schema change on line has them."""
    session = mysql_sessions()
    for event in ("INSERT", "UPDATE"):
        session.script(
            f"CREATE TRIGGER audit_{event} AFTER {event} ON holdfast_locks FOR EACH ROW SET @seen = NEW.token"
        )
    yield
    for event in ("INSERT", "UPDATE"):
        session.script(f"DROP TRIGGER audit_{event}")


@pytest.mark.usefixtures("audited")
def test_a_trigger_on_the_table_does_not_hide_the_token(mysql_store):
    """A trigger empties the insert id in the server's answer, by which the token travels."""
    first = take(mysql_store)  # a row that is new
    assert mysql_store.execute(Release("k", "a-1", first.token)) == Released()
    second = take(mysql_store, attempt="a-2")  # a row that is free
    assert second.token > first.token > 0
    assert isinstance(mysql_store.execute(Acquire("k", "w-1", "w-1", 60.0, CLIENT, wait=True)), Queued)
    assert mysql_store.execute(Release("k", "a-2", second.token)) == Released(next="w-1")
    third = mysql_store.execute(Acquire("k", "w-1", "w-1", 60.0, CLIENT, wait=True))  # a hand-over
    assert third.token > second.token
    assert mysql_store.execute(Release("k", "w-1", third.token)) == Released()


@pytest.mark.usefixtures("audited")
def test_who_cannot_ask_for_the_hidden_token_is_not_told_that_nothing_was_taken(mysql_store, monkeypatch):
    def fail(*_: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(MySQLSession, "script", fail)
        with pytest.raises(OutcomeUnknown):
            take(mysql_store)
    assert take(mysql_store).token > 0  # the same attempt, which has it already


READ_ONLY = "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290"
LOCKED = "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1205"
INTERRUPTED = "SIGNAL SQLSTATE '70100' SET MYSQL_ERRNO = 1317"
ENDED = "KILL CONNECTION_ID()"


def let_the_second_fail(store, failure: str) -> None:
    """Have the statement fail that goes along with the one that takes a lock, in the same text."""
    store.source.statements["acquire_new"] = Statement(failure)


@pytest.mark.parametrize(
    "failure",
    [READ_ONLY, LOCKED, INTERRUPTED, ENDED],
    ids=["read-only", "locked", "interrupted", "ended"],
)
def test_who_has_the_lock_is_told_so_whatever_becomes_of_the_statement_behind(mysql_store, failure):
    """P6: each of the two commits by itself, so the error of the second says nothing about the first."""
    before = free(mysql_store)
    mysql_store.dialect._used.clear()  # as in a client that has not used the key yet
    let_the_second_fail(mysql_store, failure)
    granted = take(mysql_store, attempt="a-2")
    assert granted.token > before
    assert mysql_store.execute(Release("k", "a-2", granted.token)) == Released()


@pytest.mark.usefixtures("audited")
@pytest.mark.parametrize("failure", [LOCKED, INTERRUPTED], ids=["locked", "interrupted"])
def test_a_hidden_token_can_still_be_asked_for_behind_an_error(mysql_store, failure):
    before = free(mysql_store)
    mysql_store.dialect._used.clear()
    let_the_second_fail(mysql_store, failure)
    granted = take(mysql_store, attempt="a-2")
    assert granted.token > before
    assert mysql_store.execute(Release("k", "a-2", granted.token)) == Released()


@pytest.mark.usefixtures("audited")
def test_a_hidden_token_that_was_taken_before_an_error_is_not_called_not_taken(mysql_store):
    """The line has been given up with a server that is read-only, and nobody can be asked any more."""
    free(mysql_store)
    mysql_store.dialect._used.clear()
    let_the_second_fail(mysql_store, READ_ONLY)
    with pytest.raises(OutcomeUnknown):
        take(mysql_store, attempt="a-2")


def test_who_took_nothing_is_told_what_became_of_the_statement_behind(mysql_store):
    let_the_second_fail(mysql_store, READ_ONLY)
    with pytest.raises(StoreUnavailable, match="read-only"):
        take(mysql_store)
