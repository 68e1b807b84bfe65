"""Floors of a hand-over on a server, with a driver and nothing else.

A lock of the server's own keeps nothing on the disk. PostgreSQL can also wake a listener with a commit.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench import peers, servers
from bench.contest import clock
from bench.measure import percentile
from bench.processes import Ready, mixed


def advisory_lock(url: str) -> peers.Take:
    cursor = _cursor(url)

    def take(key: str) -> peers.Release:
        cursor.execute("SELECT pg_advisory_lock(hashtext(%s))", (key,))
        return lambda: cursor.execute("SELECT pg_advisory_unlock(hashtext(%s))", (key,))

    return take


def _cursor(url: str) -> Any:
    connection = servers.postgres(url)
    connection.prepare_threshold = 0  # prepare at once
    return connection.cursor()


def advisory_lock_libpq(url: str) -> peers.Take:
    pg = servers.postgres(url).pgconn
    pg.prepare(b"lock", b"SELECT pg_advisory_lock(hashtext($1))")
    pg.prepare(b"unlock", b"SELECT pg_advisory_unlock(hashtext($1))")

    def take(key: str) -> peers.Release:
        name = [key.encode()]
        assert pg.exec_prepared(b"lock", name).ntuples
        return lambda: pg.exec_prepared(b"unlock", name)

    return take


def get_lock(url: str) -> peers.Take:
    cursor = servers.mariadb(url).cursor()

    def take(key: str) -> peers.Release:
        cursor.execute("SELECT GET_LOCK(%s, 60)", (key,))
        assert cursor.fetchall() == ((1,),)
        return lambda: cursor.execute("SELECT RELEASE_LOCK(%s)", (key,))

    return take


RAW: dict[str, Callable[[str], peers.Take]] = {"PostgreSQL": advisory_lock, "MariaDB": get_lock}


def update_and_notify(url: str, seconds: float, *, direct: bool = False) -> tuple[float, float]:
    """Return p50 and p99 of the way from an update, over its commit, to a listener that wakes up."""
    with servers.postgres(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS floor (id int PRIMARY KEY, token bigint NOT NULL)")
        connection.execute("INSERT INTO floor VALUES (1, 1) ON CONFLICT DO NOTHING")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        _, gaps = mixed([(_tell, (0, ours, url, direct)), (_hear, (1, theirs, url, direct))], seconds)
    return percentile(gaps, 0.5) / 1e9, percentile(gaps, 0.99) / 1e9


def _tell(index: int, ready: Ready, line: socket.socket, url: str, direct: bool) -> None:  # noqa: ARG001
    told = "UPDATE floor SET token = token + 1 WHERE id = 1 RETURNING pg_notify('floor', {})"
    pg, cursor = servers.postgres(url).pgconn, _cursor(url)
    pg.prepare(b"tell", told.format("$1").encode())

    def tell(text: str) -> None:
        if direct:
            assert pg.exec_prepared(b"tell", [text.encode()]).ntuples
        else:
            cursor.execute(told.format("%s"), (text,))

    stop = ready()
    while (leaving := clock()) < stop:
        tell(str(leaving))
        line.recv(16)
        time.sleep(0.0005)  # who is woken shall be asleep, as who waits for a lock is
    tell("0")


def _hear(index: int, ready: Ready, line: socket.socket, url: str, direct: bool) -> list[int]:  # noqa: ARG001
    connection = servers.postgres(url)
    connection.execute("LISTEN floor")
    gaps = []
    ready()
    for payload in (
        _notices(connection.pgconn) if direct else (each.payload for each in connection.notifies())
    ):
        entered = clock()
        if payload == "0":
            break
        gaps.append(entered - int(payload))
        line.send(b"heard")
    return gaps


def _notices(pg: Any) -> Iterator[str]:
    poll = select.poll()
    poll.register(pg.socket, select.POLLIN)
    while True:
        while told := pg.notifies():
            yield told.extra.decode()
        poll.poll()
        pg.consume_input()
