"""The servers of the tests do what the tests rely on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import psycopg
import pymysql
import pytest

from tests.servers import MariaDBServer, PgBouncer, PostgresServer, Proxy, guardian
from tests.servers.fixtures import require
from tests.servers.ports import HOST, is_free
from tests.servers.scratch import RUN, scratch

PATIENCE = 20.0


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(HOST, postgres_server.port) as proxy:
        yield proxy
    assert not any(thread.name.startswith("proxy") for thread in threading.enumerate())


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as thread:
        yield thread


def connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url, autocommit=True, connect_timeout=20)


def test_a_killed_postgres_comes_back_with_its_data() -> None:
    require("postgres")
    with PostgresServer(durable=True) as server:
        url = server.create_database()
        with connect(url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS x")
            server.kill()
            assert guardian.inhabitants(server.directory) == set()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        server.restart()
        with connect(url) as connection:
            assert connection.execute("SELECT x FROM kept").fetchall() == [(7,)]
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
        server.stop()
        assert is_free(server.port)
    assert not server.directory.exists()


def test_a_killed_mariadb_comes_back_with_its_data() -> None:
    require("mariadbd")
    with MariaDBServer(durable=True) as server:
        database = server.create_database().rpartition("/")[2]
        server.execute("CREATE TABLE kept AS SELECT 7 AS x", database)
        server.kill()
        assert guardian.inhabitants(server.directory) == set()
        with pytest.raises(pymysql.err.OperationalError):
            server.execute("SELECT 1")
        server.restart()
        assert server.execute("SELECT x FROM kept", database) == [(7,)]
        server.stop()
        assert is_free(server.port)


def test_a_synchronous_standby_takes_over_with_all_that_was_committed() -> None:
    require("postgres")
    with PostgresServer() as primary, primary.standby(synchronous=True) as standby:
        with connect(primary.url()) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS x")
        with connect(standby.url()) as connection, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("CREATE TABLE refused ()")
        primary.kill()
        standby.promote()
        with connect(standby.url()) as connection:
            connection.execute("UPDATE kept SET x = x + 1")
            assert connection.execute("SELECT x FROM kept").fetchall() == [(8,)]


def test_a_paused_postgres_is_silent_until_it_is_resumed(thread: ThreadPoolExecutor) -> None:
    require("postgres")
    with PostgresServer() as server, connect(server.url()) as connection:
        server.pause()
        answer = thread.submit(lambda: connection.execute("SELECT 7").fetchall())
        assert not wait([answer], 0.2).done
        server.resume()
        assert answer.result(PATIENCE) == [(7,)]
        server.configure(deadlock_timeout="7s")
        assert server.execute("SHOW deadlock_timeout") == [("7s",)]


def test_pgbouncer_mixes_sessions_in_transaction_mode(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    require("pgbouncer")
    with PgBouncer(postgres_server) as bouncer:
        url = bouncer.through(postgres_url)
        with connect(url) as one, connect(url) as two:
            sessions = [each.execute("SELECT pg_backend_pid()").fetchone() for each in (one, two)]
        assert sessions[0] == sessions[1]


def test_a_mariadb_database_is_for_one_test(mariadb_server: MariaDBServer, mariadb_url: str) -> None:
    assert mariadb_url == mariadb_server.url(mariadb_url.rpartition("/")[2])
    assert mariadb_server.execute("SELECT @@innodb_flush_log_at_trx_commit") == [(0,)]
    assert mariadb_server.execute("SHOW TABLES", mariadb_url.rpartition("/")[2]) == []


def test_a_cut_resets_connections_and_welcomes_new_ones(proxy: Proxy, postgres_url: str) -> None:
    with connect(proxy.through(postgres_url)) as connection:
        assert connection.execute("SELECT 7").fetchone() == (7,)
        assert proxy.connections == 1
        proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 7")
    with connect(proxy.through(postgres_url)) as connection:
        assert connection.execute("SELECT repeat('x', 3000000)").fetchone() == ("x" * 3_000_000,)


def test_a_proxy_that_refuses_keeps_the_connections_it_has(proxy: Proxy, postgres_url: str) -> None:
    with connect(proxy.through(postgres_url)) as connection:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError, match="refused"):
            connect(proxy.through(postgres_url))
        assert connection.execute("SELECT 7").fetchone() == (7,)
        proxy.accept()
        connect(proxy.through(postgres_url)).close()


def test_a_deaf_proxy_passes_on_later_what_it_did_not_hear(
    proxy: Proxy, postgres_url: str, thread: ThreadPoolExecutor
) -> None:
    with connect(proxy.through(postgres_url)) as connection:
        proxy.deaf()
        answer = thread.submit(lambda: connection.execute("SELECT 7").fetchall())
        assert not wait([answer], 0.2).done
        proxy.hear()
        assert answer.result(PATIENCE) == [(7,)]


def test_a_lost_answer_belongs_to_a_statement_that_was_run(
    proxy: Proxy, postgres_url: str, thread: ThreadPoolExecutor
) -> None:
    with connect(proxy.through(postgres_url)) as connection, connect(postgres_url) as witness:
        witness.execute("CREATE TABLE done (x int)")
        proxy.lose_answers()
        answer = thread.submit(lambda: connection.execute("INSERT INTO done VALUES (7)").rowcount)
        eventually(lambda: witness.execute("SELECT x FROM done").fetchall() == [(7,)])
        assert not wait([answer], 0.1).done
        proxy.restore()
        with pytest.raises(psycopg.OperationalError):
            answer.result(PATIENCE)
    with connect(proxy.through(postgres_url)) as connection:
        assert connection.execute("SELECT x FROM done").fetchall() == [(7,)]


def test_a_delay_is_for_either_direction(proxy: Proxy, postgres_url: str) -> None:
    with connect(proxy.through(postgres_url)) as connection:
        proxy.delay(0.1)
        start = time.monotonic()
        connection.execute("SELECT 7")
        assert time.monotonic() - start >= 0.2
        proxy.delay(600)
        proxy.restore()
        connection.execute("SELECT 7")


def test_half_an_answer_is_all_that_a_client_gets_once() -> None:
    with socket.create_server((HOST, 0)) as server, Proxy(*server.getsockname()) as proxy:
        for expected in (b"01234", b"0123456789"):  # who connects later is not concerned
            with socket.create_connection((HOST, proxy.port)) as client, server.accept()[0] as answering:
                if expected == b"01234":
                    proxy.halve_answers()
                answering.sendall(b"0123456789")
                assert client.recv(10, socket.MSG_WAITALL) == expected


def test_a_proxy_can_be_pointed_at_another_server() -> None:
    with (
        socket.create_server((HOST, 0)) as one,
        socket.create_server((HOST, 0)) as two,
        Proxy(*one.getsockname(), at="127.0.0.2") as proxy,
    ):
        assert proxy.through(f"mysql://somebody@{HOST}:1/x") == f"mysql://somebody@127.0.0.2:{proxy.port}/x"
        with socket.create_connection((proxy.at, proxy.port)) as client, one.accept()[0]:
            proxy.point_at(*two.getsockname())
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        with socket.create_connection((proxy.at, proxy.port)) as client, two.accept()[0] as answering:
            answering.sendall(b"2")
            assert client.recv(1) == b"2"


def test_a_client_of_a_server_that_is_down_is_cut_off() -> None:
    with Proxy(HOST, 1) as proxy, socket.create_connection((HOST, proxy.port)) as client:
        client.settimeout(PATIENCE)
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_killed_test_run_leaves_no_server_behind() -> None:
    require("postgres")
    code = (
        "from tests.servers import *; s = PostgresServer(); s.start(); s.pause(); print(s.directory); input()"
    )
    run = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, RUN: scratch().name},
    )
    with run:
        assert run.stdout is not None
        directory = Path(run.stdout.readline().strip())
        assert guardian.inhabitants(directory)
        os.kill(run.pid, signal.SIGKILL)
    eventually(lambda: not directory.exists() and not guardian.inhabitants(directory))


def eventually(question: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not question():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
