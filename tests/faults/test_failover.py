"""Servers that die, and others that take their place: the rows of docs/concepts/high-availability.md.

Whatever of them can be played on one machine is played here, by real servers and real clients.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    HoldfastError,
    Lease,
    LeaseLost,
    LockTimeout,
    OutcomeUnknown,
    Settings,
    StoreUnavailable,
)
from holdfast.core.requests import Acquire, Client, Granted, Renew, RenewLease
from holdfast.stores.sql.options import split_url
from tests.faults.conftest import SERVERS
from tests.faults.failover import (
    KEYS,
    QUICK,
    AnyServer,
    Clock,
    Traffic,
    Turn,
    at_all,
    detach,
    renew,
    rows,
    tokens,
    transaction,
    until_replayed,
    violations,
)
from tests.faults.processes import PATIENCE, eventually
from tests.servers import MariaDBServer, PostgresServer
from tests.servers.binaries import faketime
from tests.servers.fixtures import require, with_tables
from tests.servers.postgres import OWNER

LONG = 600.0  # a ttl that no test outlives

# What does not arrive by a signal does not arrive in time.
NO_HEARTBEAT = Settings(heartbeat=1000, claim=2000, patience=3000, sweep_every=None)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "high-availability.md"


KINDS: dict[str, type[AnyServer]] = {"postgres": PostgresServer, "mariadb": MariaDBServer}


@pytest.fixture(params=SERVERS)
def durable(request: pytest.FixtureRequest) -> Iterator[AnyServer]:
    """A server of our own, whose commits survive a kill."""
    kind = KINDS[request.param]
    require(kind.program)
    with kind(durable=True) as server:
        yield server


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    """A server of our own, with little care for its disk: surviving is the part of its standby."""
    require("postgres")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def url(primary: PostgresServer) -> str:
    """The URL of a database with our tables, at the primary."""
    url = primary.create_database()
    with_tables(url)
    return url


@pytest.fixture
def standby(primary: PostgresServer, url: str) -> Iterator[PostgresServer]:
    """A standby that has the tables, and that nobody waits for."""
    with primary.standby() as standby:
        eventually(lambda: tokens(standby, url) == {})
        yield standby


@pytest.fixture
def synchronous_standby(primary: PostgresServer, url: str) -> Iterator[PostgresServer]:
    """A standby that the primary's commits wait for."""
    with primary.standby(synchronous=True) as standby:
        yield standby


@pytest.fixture(params=SERVERS)
def clocked(request: pytest.FixtureRequest) -> Iterator[tuple[AnyServer, Clock]]:
    """A server whose clock can be set."""
    kind = KINDS[request.param]
    require(kind.program)
    if faketime() is None:
        pytest.skip("missing: libfaketime, from the package libfaketime")
    server = kind()
    clock = Clock(server)
    with server:
        yield server, clock


# The last in a test's arguments, so that clients are closed while there is a server to say goodbye to.
@pytest.fixture
def client() -> Iterator[Callable[..., Holdfast]]:
    """Make clients that are closed, however the test ends."""
    made: list[Holdfast] = []

    def make(url: str, settings: Settings = QUICK) -> Holdfast:
        made.append(Holdfast(url, settings=settings))
        return made[-1]

    yield make
    for locks in made:
        locks.close()


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as thread:
        yield thread


def missing(granted: dict[str, int], there: dict[str, int]) -> dict[str, int]:
    """Return which of the newest leases are newer than those that are there."""
    return {key: token for key, token in granted.items() if there.get(key, 0) < token}


# One server.


@pytest.mark.parametrize("way", ["restarted", "killed"])
def test_leases_outlive_a_server_that_is(
    way: str, durable: AnyServer, client: Callable[..., Holdfast]
) -> None:
    url = f"{with_tables(durable.create_database())}&request_timeout=2"
    locks = client(url)
    with Traffic(url) as traffic:
        lease = locks.acquire("resident", ttl=LONG)
        if way == "killed":
            durable.kill()
        else:
            durable.stop()
        granted = traffic.newest() | {"resident": lease.token}
        durable.start()
        assert missing(granted, tokens(durable, url)) == {}
        traffic.until_all_had_turns()
        assert locks.try_acquire("resident", owner="rival") is None
        renew(locks, lease)
        with transaction(durable, url) as connection:
            lease.fence(connection)
        lease.release()
        assert locks.acquire("resident", timeout=PATIENCE).token > lease.token
        assert violations(traffic.stop()) == []


# A synchronous standby.


def test_a_synchronous_standby_takes_over_with_every_lease(
    primary: PostgresServer,
    url: str,
    synchronous_standby: PostgresServer,
    thread: ThreadPoolExecutor,
    client: Callable[..., Holdfast],
) -> None:
    """Clients that name both servers move over by themselves, and so do their wake-ups."""
    standby = synchronous_standby
    both = at_all(url, primary, standby)
    locks = client(both)
    patient = client(at_all(url, primary, standby, application_name="patient"), NO_HEARTBEAT)
    with Traffic(both) as traffic:
        lease = locks.acquire("resident", ttl=LONG)
        waiter = thread.submit(lambda: patient.acquire("resident", timeout=2 * PATIENCE).token)
        queued = "SELECT waiters FROM holdfast_locks WHERE lock_key = 'resident'"
        eventually(lambda: rows(standby, url, queued) == [(1,)])
        primary.kill()
        granted = traffic.newest() | {"resident": lease.token}
        until_replayed(standby)
        assert missing(granted, tokens(standby, url)) == {}
        standby.promote()

        traffic.until_all_had_turns()
        assert locks.try_acquire("resident", owner="rival") is None
        renew(locks, lease)
        with transaction(standby, url) as connection:
            lease.fence(connection)
        listening = (
            "SELECT pid FROM pg_stat_activity"
            " WHERE application_name = 'patient' AND query ~ 'LISTEN' AND state = 'idle'"
        )
        eventually(lambda: rows(standby, url, listening))
        lease.release()
        assert waiter.result(PATIENCE) > lease.token
        assert violations(traffic.stop()) == []


def test_clients_leave_a_primary_that_turns_read_only_under_their_connections(
    primary: PostgresServer,
    url: str,
    synchronous_standby: PostgresServer,
    client: Callable[..., Holdfast],
) -> None:
    """That is how many switch-overs are made: the old one refuses to write, and keeps its sessions."""
    both = at_all(url, primary, synchronous_standby)
    locks = client(both)
    with Traffic(both) as traffic:
        lease = locks.acquire("resident", ttl=LONG)
        primary.configure(default_transaction_read_only="on")
        eventually(lambda: tokens(primary, url) == tokens(synchronous_standby, url))
        synchronous_standby.promote()
        traffic.until_all_had_turns()
        renew(locks, lease)
        eventually(
            lambda: missing(tokens(synchronous_standby, url), tokens(primary, url)).keys() >= set(KEYS)
        )
        assert violations(traffic.stop()) == []


def test_an_old_primary_without_its_synchronous_standby_grants_and_renews_nothing(
    primary: PostgresServer,
    url: str,
    synchronous_standby: PostgresServer,
    client: Callable[..., Holdfast],
) -> None:
    """Split brain with synchronous replication: whatever the old one still does, it tells nobody."""
    old = client(f"{url}?request_timeout=1")
    lease = old.acquire("resident", ttl=LONG)
    renew(old, lease)
    synchronous_standby.promote()
    with pytest.raises((OutcomeUnknown, StoreUnavailable)):
        old.acquire("other", timeout=1)
    trusted_until = lease._holding.kept.trusted_until
    old._engine.keeper.hurry(lease._holding.kept.grant.attempt)
    eventually(lambda: lease._holding.kept.trouble)
    assert lease._holding.kept.trusted_until == trusted_until

    new = client(at_all(url, synchronous_standby))
    assert new.try_acquire("resident", owner="rival") is None  # it knows every lease that somebody trusts
    assert new.try_acquire("other", owner="rival") is not None
    primary.kill()  # closing the client would wait for what it cannot do


# A wait for the standby that is cancelled.


def make_unconfirmed(server: PostgresServer) -> None:
    """From now on commits wait for a standby that does not exist."""
    server.configure(synchronous_standby_names="nobody", synchronous_commit="on")


def unconfirmed(server: PostgresServer) -> set[tuple[int, Any]]:
    """Return which of our sessions wait for a standby, and since when."""
    return set(
        server.execute(
            "SELECT pid, xact_start FROM pg_stat_activity"
            " WHERE wait_event = 'SyncRep' AND application_name = 'holdfast'"
        )
    )


@pytest.fixture(scope="module")
def shared() -> Iterator[PostgresServer]:
    """A server that tests change the settings of, and change them back."""
    require("postgres")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def shared_url(shared: PostgresServer) -> Iterator[str]:
    url = shared.create_database()
    with_tables(url)
    yield url
    shared.configure(synchronous_standby_names="")


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
@pytest.mark.parametrize("what", ["a grant", "a grant with its history", "a renewal", "a claim"])
def test_a_cancelled_wait_for_the_standby_is_not_a_yes(
    how: str,
    what: str,
    shared: PostgresServer,
    shared_url: str,
    thread: ThreadPoolExecutor,
    client: Callable[..., Holdfast],
) -> None:
    """PostgreSQL says yes, and only warns: it is committed there, and perhaps nowhere else."""
    locks = client(shared_url, Settings(history="all" if "history" in what else "notable", sweep_every=None))
    ask = locks._engine.store.execute
    question: Any = Acquire(
        "nightly", "a-1", "alice", LONG, Client("instance", "host", 1), wait=True, claim=LONG
    )
    if what == "a renewal":
        granted = ask(question)
        assert isinstance(granted, Granted)
        question = Renew(leases=(RenewLease("nightly", "a-1", granted.token, 2 * LONG),))
    elif what == "a claim":
        holder = locks.acquire("nightly", renew=False)
        ask(question)
        holder.release()
    make_unconfirmed(shared)
    answer = thread.submit(lambda: ask(question))
    ((pid, _),) = eventually(lambda: unconfirmed(shared))
    assert not answer.done()
    shared.execute(f"SELECT {how}({pid})")
    with pytest.raises(OutcomeUnknown):
        answer.result(PATIENCE)
    there = "SELECT attempt, claimed FROM holdfast_locks WHERE lock_key = 'nightly'"
    assert rows(shared, shared_url, there) == [("a-1", 1)]  # and so it was no failure either


@pytest.mark.parametrize("setting", ["synchronous_commit = 'local'", "client_min_messages = 'error'"])
def test_a_role_whose_settings_hide_it_has_to_wait_for_the_standby_as_well(
    setting: str,
    shared: PostgresServer,
    shared_url: str,
    thread: ThreadPoolExecutor,
    client: Callable[..., Holdfast],
) -> None:
    name = setting.partition(" ")[0]
    shared.execute(f"ALTER ROLE {OWNER} SET {setting}")
    try:
        ask = client(shared_url)._engine.store.execute
        make_unconfirmed(shared)
        grant = Acquire("nightly", "a-1", "alice", LONG, Client("instance", "host", 1))
        answer = thread.submit(lambda: ask(grant))
        ((pid, _),) = eventually(lambda: unconfirmed(shared))
        shared.execute(f"SELECT pg_cancel_backend({pid})")
        with pytest.raises(OutcomeUnknown):
            answer.result(PATIENCE)
    finally:
        shared.configure(synchronous_standby_names="")  # this would have to wait for it, too
        shared.execute(f"ALTER ROLE {OWNER} RESET {name}")


def test_a_client_asks_again_until_its_grant_is_confirmed(
    shared: PostgresServer, shared_url: str, thread: ThreadPoolExecutor, client: Callable[..., Holdfast]
) -> None:
    locks = client(shared_url)
    make_unconfirmed(shared)
    waiter = thread.submit(lambda: locks.acquire("nightly", ttl=LONG, timeout=2 * PATIENCE).token)
    cancelled: set[tuple[int, Any]] = set()
    while len(cancelled) < 3:
        wait = eventually(lambda: unconfirmed(shared) - cancelled).pop()
        assert not waiter.done()
        shared.execute(f"SELECT pg_cancel_backend({wait[0]})")
        cancelled.add(wait)
    eventually(lambda: unconfirmed(shared) - cancelled)
    assert not waiter.done()
    ((token,),) = rows(shared, shared_url, "SELECT token FROM holdfast_locks")
    shared.configure(synchronous_standby_names="")
    assert waiter.result(PATIENCE) == token  # the grant that was there all the time, not another one


# An asynchronous standby.


def test_an_asynchronous_standby_may_not_know_the_newest_leases(
    primary: PostgresServer, url: str, standby: PostgresServer, client: Callable[..., Holdfast]
) -> None:
    """Two believe, each by what it was told. Tokens rise all the same, and a fence tells them apart."""
    both = at_all(url, primary, standby)
    locks = client(both)
    with Traffic(both) as traffic:
        known = locks.acquire("known", ttl=LONG)
        eventually(lambda: tokens(standby, url).get("known") == known.token)
        detach(standby, primary)
        first = locks.acquire("forgotten", ttl=LONG, renew=False)
        renewed = locks.acquire("forgotten too", ttl=LONG)
        eventually(lambda: missing(traffic.newest(), tokens(standby, url)).keys() == set(KEYS))
        primary.kill()
        forgotten = traffic.newest()
        standby.promote()

        second = locks.acquire("forgotten", ttl=LONG, owner="rival", timeout=PATIENCE)
        assert first.held  # as far as it knows
        assert second.held
        assert second.token > first.token
        with transaction(standby, url) as connection, pytest.raises(LeaseLost):
            first.fence(connection)
        assert not first.held
        with transaction(standby, url) as connection:
            second.fence(connection)
        locks._engine.keeper.hurry(renewed._holding.kept.grant.attempt)
        assert renewed.lost.wait(PATIENCE)  # without a fence its next renewal tells it

        with transaction(standby, url) as connection:
            known.fence(connection)
        assert locks.try_acquire("known", owner="rival") is None
        traffic.until_all_had_turns()
        eventually(lambda: missing(traffic.newest(), forgotten).keys() == set(KEYS))
        assert violations(traffic.stop(), overlaps=True) == []


def test_data_on_the_new_primary_stays_right_beside_an_old_one_that_lives_on(
    primary: PostgresServer, url: str, standby: PostgresServer, client: Callable[..., Holdfast]
) -> None:
    """Split brain: both grant the lock. Whoever has it from where the data is not cannot write the data."""
    rows(primary, url, "CREATE TABLE counter AS SELECT 0 AS n")
    rows(primary, url, "ALTER TABLE counter OWNER TO holdfast")
    eventually(
        lambda: rows(
            standby, url, "SELECT 1 FROM pg_tables WHERE tableowner = 'holdfast' AND tablename = 'counter'"
        )
    )
    detach(standby, primary)
    standby.promote()
    old, new = client(url), client(at_all(url, standby))

    def count(lease: Lease, *, fenced: bool = True) -> None:
        with transaction(standby, url) as connection:
            if fenced:
                lease.fence(connection)
            connection.execute("UPDATE counter SET n = n + 1")

    theirs, ours = old.acquire("counter", ttl=LONG), new.acquire("counter", ttl=LONG)
    assert theirs.held
    assert ours.held
    count(ours)
    with pytest.raises(HoldfastError):
        count(theirs)
    assert theirs.token < ours.token
    theirs.release()
    theirs = old.acquire("counter", ttl=LONG)
    assert theirs.token > ours.token  # which does not help it: a fence wants the very same
    with pytest.raises(HoldfastError):
        count(theirs)
    assert rows(standby, url, "SELECT n FROM counter") == [(1,)]
    count(theirs, fenced=False)
    assert rows(standby, url, "SELECT n FROM counter") == [(2,)]  # nothing else would have stopped it


def test_who_enters_again_after_an_asynchronous_failover_may_get_an_older_token(
    primary: PostgresServer, url: str, standby: PostgresServer, client: Callable[..., Holdfast]
) -> None:
    """What is not promised: the standby does not know that the lease was over, and takes it for re-entry."""
    locks = client(at_all(url, primary, standby))
    first = locks.acquire("nightly", owner="anna", ttl=LONG)
    eventually(lambda: tokens(standby, url) == {"nightly": first.token})
    detach(standby, primary)
    first.release()
    forgotten = locks.acquire("nightly", owner="bert", ttl=LONG)
    primary.kill()
    standby.promote()
    again = locks.acquire("nightly", owner="anna", ttl=LONG, timeout=PATIENCE)
    assert again.token == first.token < forgotten.token
    again.release()
    locks.break_lock("nightly", reason="its release was lost")
    assert locks.acquire("nightly", owner="anna", ttl=LONG).token > forgotten.token


# A clock that is set.


def test_a_database_clock_that_steps_moves_the_ends_of_leases_and_lowers_no_token(
    clocked: tuple[AnyServer, Clock], client: Callable[..., Holdfast]
) -> None:
    server, clock = clocked
    url = server.create_database()
    with_tables(url)
    locks = client(url)
    first = locks.acquire("nightly", owner="one", ttl=LONG, renew=False)

    clock.step(+3600)
    second = locks.acquire("nightly", owner="two", ttl=LONG, timeout=PATIENCE)
    assert second.token > first.token
    assert first.held  # two believe: the first until it next asks, at most until its trust is over
    with transaction(server, url) as connection, pytest.raises(LeaseLost):
        first.fence(connection)
    with transaction(server, url) as connection:
        second.fence(connection)

    clock.step(0)  # an hour back
    with pytest.raises(LockTimeout) as refused:
        locks.acquire("nightly", owner="three", timeout=0)
    assert refused.value.expires_in is not None
    assert refused.value.expires_in > 3600  # what a holder costs that dies now
    second.release()
    third = locks.acquire("nightly", owner="three", ttl=LONG)
    assert third.token == second.token + 1  # the clock has nothing to add for an hour
    clock.step(-3600)
    third.release()
    assert locks.acquire("nightly", owner="four", ttl=LONG).token == third.token + 1


def test_clients_go_on_while_the_database_clock_steps_forward(clocked: tuple[AnyServer, Clock]) -> None:
    server, clock = clocked
    url = server.create_database()
    with_tables(url)
    with Traffic(f"{url}?request_timeout=2") as traffic:
        for seconds in (3600, 7200):
            clock.step(seconds)
            traffic.until_all_had_turns()
        assert violations(traffic.stop(), overlaps=True) == []


# The page, the url and the judge.


def test_the_page_names_tests_that_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text("utf-8")))
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "src/holdfast/testing/conformance").glob("*.py")]
    tests = "\n".join(file.read_text("utf-8") for file in files)
    assert len(named) > 10
    assert [name for name in sorted(named) if f"def {name}(" not in tests] == []


@pytest.mark.parametrize(
    "rest",
    [
        "//u@h1:1,h2:2/db?target_session_attrs=read-write",
        "///db?host=/var/run/postgresql",
        "//u@/db?host=h1,h2&port=1,2",
        "//u@h/db?options=-c%20geqo%3Doff&password=a+b",
        "//u@[::1]:5,h2/db",
    ],
)
def test_what_libpq_reads_in_a_url_is_not_changed(rest: str) -> None:
    ours = "pool_size=2&request_timeout=3"
    address, options = split_url(f"postgresql:{rest}{'&' if '?' in rest else '?'}{ours}")
    assert address == f"postgresql:{rest}"
    assert (options.pool_size, options.request_timeout) == (2, 3.0)


def test_the_checker_can_tell() -> None:
    assert violations([Turn("a", 1, 0.0, 1.0), Turn("a", 2, 1.0, 2.0), Turn("b", 1, 0.5, 0.6)]) == []
    assert "trusted" in violations([Turn("a", 1, 0.0, 1.0), Turn("a", 2, 0.9, 2.0)])[0]
    assert violations([Turn("a", 1, 0.0, 1.0), Turn("a", 2, 0.9, 2.0)], overlaps=True) == []
    first, asked_before, asked_after = (
        Turn("a", *turn) for turn in ((2, 0, 1), (1, 1.5, 2, -1), (1, 1.5, 2, 1))
    )
    assert violations([first, asked_before], overlaps=True) == []
    assert "granted after" in violations([first, asked_after], overlaps=True)[0]
    assert "granted after" in violations([Turn("a", 2, 0.0, 1.0), Turn("a", 2, 1.5, 2.0)])[0]
