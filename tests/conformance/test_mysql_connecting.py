"""Connections to MySQL: how they are set up, what they refuse, and how they fail."""

import re
import signal
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import pytest
import sqlalchemy

from holdfast import errors
from holdfast.core.requests import Acquire, Granted, Inspect
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.mysql import callers, failures, from_engine, variables
from holdfast.stores.sql.transactions.session import Conflict, RowLocked
from holdfast.testing.conformance import CLIENT
from tests.servers.fixtures import require
from tests.servers.mariadb import MariaDBServer
from tests.servers.proxy import Proxy

OPTIONS = StoreOptions(CLIENT)


def test_a_session_is_set_up_to_wait_for_nothing_long(mysql_sessions):
    ((isolation, zone, mode, lock, statement, idle, autocommit, charset),) = mysql_sessions().script(
        "SELECT @@tx_isolation, @@time_zone, @@sql_mode, @@innodb_lock_wait_timeout, @@max_statement_time,"
        " @@idle_transaction_timeout, @@autocommit, @@character_set_client"
    )
    assert (isolation, zone, charset) == ("READ-COMMITTED", "+00:00", "utf8mb4")
    assert "STRICT_ALL_TABLES" in mode
    assert "SIMULTANEOUS_ASSIGNMENT" not in mode
    assert (lock, float(statement), idle, autocommit) == (1, 8.0, 3, 1)


def test_a_listener_may_wait_but_the_server_forgets_one_that_does_not_ask_any_more(mysql_store):
    listener = mysql_store.source.new_listener(mysql_store.source.connect)
    ((statement, idle),) = listener.script("SELECT @@max_statement_time, @@wait_timeout")
    assert (float(statement), idle) == (0.0, 60)
    listener.close()


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        (["transaction_isolation"], "store_id"),  # MySQL
        (["tx_isolation"], "store_id"),  # old MariaDB
        (
            ["innodb_snapshot_isolation", "tx_isolation"],
            "store_id, @@session.tx_isolation, @@session.innodb_snapshot_isolation",
        ),
        (
            ["innodb_snapshot_isolation", "transaction_isolation", "tx_isolation"],
            "store_id, @@session.transaction_isolation, @@session.innodb_snapshot_isolation",
        ),
    ],
)
def test_a_caller_s_level_is_asked_for_by_what_the_server_knows(known, asked):
    assert callers.id_and_level("SELECT store_id FROM t", known) == f"SELECT {asked} FROM t"
    callers.check_level(("id",))


def test_several_statements_are_one_round_trip_and_each_has_its_rows(mysql_sessions):
    session = mysql_sessions()
    walks = []
    walk = session._walk
    session._walk = lambda *given: (walks.append(1), walk(*given))[1]
    rows = session.send(
        [("begin", {}), ("now", {"now": 7}), ("commit_lazily", {}), ("commit", {})], commits=True
    )
    assert rows == [[], [(7,)], [], []]
    assert len(walks) == 1


def test_a_hint_behind_the_commit_may_fail(mysql_sessions):
    session = mysql_sessions()
    wake = ("wake", {"instance": "nobody"})
    rows = session.send([("begin", {}), ("commit", {}), wake, ("now", {"now": 7}), wake], commits=True)
    assert rows == [[], []]
    assert session.is_alive()


def test_a_failed_transaction_can_be_rolled_back_and_the_connection_used_again(mysql_sessions):
    session = mysql_sessions()
    event = {
        "key": "k",
        "number": 1,
        "kind": "x",
        "at": 1,
        "token": 1,
        "owner": None,
        "by": None,
        "reason": None,
    }
    with pytest.raises(Conflict):
        session.send([("begin", {}), ("write_event", event), ("write_event", event), ("now", {"now": 7})])
    assert not session.is_alive()
    session.roll_back()
    assert session.is_alive()
    assert session.fetch("history", {"key": "k", "limit": 10}) == []


def test_a_closed_connection_is_noticed_without_asking(mysql_sessions, mariadb_server):
    session = mysql_sessions()
    assert session.is_alive()
    ((number,),) = session.script("SELECT connection_id()")
    mariadb_server.execute(f"KILL {number}")
    deadline = time.monotonic() + 5
    while session.is_alive() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not session.is_alive()


def test_an_interrupted_request_ends_the_connection(mysql_sessions):
    """Its answer would else be taken for the answer to the next one."""
    session = mysql_sessions()

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - from here on it may come
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            session.script("SELECT SLEEP(3)")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not session.is_alive()
    with pytest.raises(errors.StoreUnavailable):  # certainly not sent
        session.fetch("now", {"now": None})


def test_an_answer_that_does_not_come_is_an_unknown_outcome(mariadb_locks):
    url = urlsplit(mariadb_locks)
    with Proxy(url.hostname, url.port) as proxy:
        store = open_store(f"{proxy.through(mariadb_locks)}&request_timeout=3&signals=no", OPTIONS)
        store.open()
        store.execute(Acquire("k", "a-1", "a-1", 10.0, CLIENT))
        session = store.sessions.pool.take()
        proxy.lose_answers()
        with pytest.raises(errors.OutcomeUnknown):
            session.fetch("now", {"now": None})
        assert not session.is_alive()
        store.sessions.pool.discard(session)
        store.close()


def test_a_statement_that_takes_too_long_was_not_applied(mysql_sessions):
    session = mysql_sessions()
    session.script("SET SESSION max_statement_time = 0.1")
    with pytest.raises(errors.StoreUnavailable, match="longer than it may"):
        session.script("SELECT count(*) FROM seq_1_to_100000000 WHERE sha1(seq) = 'x'")
    assert session.is_alive()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (1213, Conflict), (1062, Conflict), (1020, Conflict), (3058, Conflict), (1205, RowLocked),
        (1053, errors.StoreUnavailable), (1040, errors.StoreUnavailable), (1226, errors.StoreUnavailable),
        (1317, failures.Interrupted), (1969, failures.TookTooLong), (3024, failures.TookTooLong),
        (1290, errors.StoreUnavailable), (1836, errors.StoreUnavailable), (1114, errors.StoreUnavailable),
        (1045, errors.StoreMisconfigured), (1044, errors.StoreMisconfigured),
        (1049, errors.StoreMisconfigured),
        (1142, errors.StoreMisconfigured), (1665, errors.StoreMisconfigured),
        (1146, errors.SchemaMismatch), (1054, errors.SchemaMismatch),
        (1034, errors.StoreCorrupt), (1064, errors.StoreError),
    ],
)  # fmt: skip
def test_errors_by_number(number, kind):
    assert type(failures.translate(number, "…")) is kind


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"user": "nobody"}, errors.StoreMisconfigured, "user or the password"),
        ({"database": "nothing"}, errors.StoreMisconfigured, "no such database"),
        ({"port": 1}, errors.StoreUnavailable, "cannot connect"),
    ],
)
def test_a_connection_that_does_not_come_about_says_why(mariadb_locks, change, kind, words):
    url = urlsplit(mariadb_locks)
    user, port = change.get("user", url.username), change.get("port", url.port)
    path = f"/{change['database']}" if "database" in change else url.path
    password = ":secret" if "user" in change else ""
    store = open_store(f"mysql://{user}{password}@{url.hostname}:{port}{path}", OPTIONS)
    with pytest.raises(kind, match=words) as caught:
        store.open()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://host/db?schema=x", "no schemas"),
        ("mysql://host/db?pooler=yes", "pooler"),
        ("mysql://host", "no database"),
        ("mysql://host/db?colour=red", "colour"),
        ("mysql://host:port/db", "no good"),
    ],
)
def test_a_url_that_cannot_work_says_why(url, words):
    with pytest.raises(errors.SettingsError, match=words):
        open_store(url, OPTIONS)


def test_mariadb_is_another_name_for_it(mariadb_locks):
    store = open_store(mariadb_locks.replace("mysql://", "MariaDB://"), OPTIONS)
    store.open()
    assert store.execute(Inspect("k")) is None
    store.close()


def test_a_clock_that_stands_still_is_refused():
    require("mariadbd")
    with MariaDBServer(settings={"sysdate_is_now": 1}) as server:
        store = open_store(f"{server.create_database()}?apply_schema=yes", OPTIONS)
        with pytest.raises(errors.StoreMisconfigured, match="sysdate-is-now"):
            store.open()


def test_without_the_driver_one_is_told_what_to_install():
    script = (
        "import sys; sys.modules['pymysql'] = None\n"
        "from holdfast.stores import open_store\n"
        "from holdfast.errors import StoreMisconfigured\n"
        "try: open_store('mysql://host/db', None)\n"
        "except StoreMisconfigured as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "mysql:// needs PyMySQL: pip install 'holdfast[mysql]'\n"


def test_an_engine_keeps_its_own_connections(mariadb_locks):
    url = urlsplit(mariadb_locks)
    engine = sqlalchemy.create_engine(f"mysql+pymysql://{url.netloc}{url.path}", pool_size=1, max_overflow=0)
    store = from_engine(engine, OPTIONS)
    store.open()
    assert isinstance(store.execute(Acquire("k", "a-1", "a-1", 10.0, CLIENT)), Granted)
    with engine.connect() as theirs:
        assert theirs.execute(sqlalchemy.text("SELECT @@tx_isolation")).scalar() == "REPEATABLE-READ"
    store.close()
    engine.dispose()


def test_an_engine_with_another_driver_is_refused():
    class Dialect:
        driver = "mysqldb"

    class Engine:
        dialect = Dialect()

    with pytest.raises(errors.SettingsError, match="PyMySQL"):
        from_engine(Engine(), OPTIONS)


def test_many_threads_share_few_connections(mariadb_locks):
    store = open_store(f"{mariadb_locks}&pool_size=2&signals=no", OPTIONS)
    store.open()
    answers = []
    threads = [
        threading.Thread(
            target=lambda n=n: answers.append(store.execute(Acquire(f"k-{n}", "a", "a", 10.0, CLIENT)))
        )
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(answer, Granted) for answer in answers)
    assert store.sessions.pool.open <= 2
    store.close()


MODES = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO"
MYSQL_8 = {  # by its manual, where nobody has set anything
    **dict.fromkeys(("autocommit", "sql_big_selects", "unique_checks", "foreign_key_checks"), 1),
    **dict.fromkeys(("sql_safe_updates", "sql_auto_is_null", "sql_buffer_result"), 0),
    "completion_type": "NO_CHAIN",
    "sql_select_limit": 18446744073709551615,
    "sql_mode": f"{MODES},NO_ENGINE_SUBSTITUTION",
    "time_zone": "SYSTEM",
    "max_sort_length": 1024,
    "group_concat_max_len": 1024,
    "div_precision_increment": 4,
    "innodb_lock_wait_timeout": 50,
    "lock_wait_timeout": 31536000,
    "optimizer_switch": "index_merge=on,mrr=on",  # and others
    "max_execution_time": 0,
    "wait_timeout": 28800,
    "transaction_isolation": "REPEATABLE-READ",
    "transaction_read_only": 0,
}


class MySQL8:
    """A session as far as its variables are asked for."""

    def __init__(self, otherwise):
        self.values = {**MYSQL_8, **otherwise}
        self.clock = 0

    def script(self, text):
        self.clock += 1
        if text.startswith("SET SESSION"):
            for name, value in {
                **variables.PINNED,
                **variables.BOUNDS[variables.MYSQL],
            }.items():
                known = {"ON": 1, "OFF": 0, "default": MYSQL_8["optimizer_switch"]}
                self.values[name] = int(value) if value.isdigit() else known.get(value, value)
            self.values.update(transaction_isolation="READ-COMMITTED", transaction_read_only=0)
        return [tuple(self.values.get(name, self.clock) for name in re.findall(r"@@session\.(\w+)", text))]


@pytest.mark.parametrize(
    "otherwise",
    [
        {},
        {"group_concat_max_len": 4},
        {"sql_mode": "ANSI_QUOTES"},
        {"transaction_isolation": "SERIALIZABLE"},
        {"transaction_read_only": 1},
        {"optimizer_switch": "index_merge=on,mrr=off"},
        {"timestamp": 1.0},
    ],
)
def test_of_what_mysql_has_by_itself_nothing_is_told(otherwise):
    settings = variables.text(variables.MYSQL, "app")
    assert set(variables.overridden(MySQL8(otherwise), variables.MYSQL, settings)) == set(otherwise)
