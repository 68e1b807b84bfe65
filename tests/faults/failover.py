"""Traffic on a database that fails over, and what all clients together may have believed of it.

Clients are threads, each with a `Holdfast` of its own. Each notes key and token when it is granted a lease,
and from when until when it trusted it, by the boot-time clock that all share. `violations` is the judge.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Self
from urllib.parse import urlsplit

import psycopg
import pymysql

from holdfast import Holdfast, HoldfastError, Lease, Settings
from holdfast.clock import boot_time
from tests.faults.processes import CLAIM, HEARTBEAT, PATIENCE, TICKET, eventually
from tests.servers import MariaDBServer, PostgresServer
from tests.servers.binaries import faketime
from tests.servers.ports import HOST
from tests.servers.postgres import OWNER

AnyServer = PostgresServer | MariaDBServer

QUICK = Settings(heartbeat=HEARTBEAT, claim=CLAIM, patience=TICKET, sweep_every=None)
TTL = 2.0
KEYS = ("a", "b")


@dataclass
class Turn:
    """One lease: trusted from *since*, which is when the answer was there, until *until*."""

    key: str
    token: int
    since: float
    until: float = 0.0  # none yet: its holder is still at work
    asked: float = 0.0


class Traffic:
    """A few clients that take a few keys in turn, for as long as the block lasts, whatever fails."""

    def __init__(self, url: str, clients: int = 4) -> None:
        self.turns: list[Turn] = []
        self._done = [0] * clients
        self._over = threading.Event()
        self._problems: list[BaseException] = []
        self._clients = [Holdfast(url, settings=QUICK) for _ in range(clients)]
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(clients)]

    def until_all_had_turns(self) -> None:
        """Wait until each client has had a turn that began after this moment."""
        before = list(self._done)
        eventually(
            lambda: (
                self._problems or all(now >= then + 2 for then, now in zip(before, self._done, strict=True))
            )
        )
        assert not self._problems, self._problems

    def newest(self) -> dict[str, int]:
        """The largest token of each key that a client was granted so far."""
        newest: dict[str, int] = defaultdict(int)
        for turn in list(self.turns):
            newest[turn.key] = max(newest[turn.key], turn.token)
        return newest

    def stop(self) -> list[Turn]:
        """Let everybody finish, and return all turns."""
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in self._threads), "a client hangs"
        assert not self._problems, self._problems
        return self.turns

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.until_all_had_turns()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        for client in self._clients:
            client.close()

    def _run(self, n: int) -> None:
        try:
            dice = random.Random(n)
            while not self._over.is_set():
                # A new owner each time: one that comes back would enter again where its release was lost.
                self._take_turn(self._clients[n], f"{n}-{self._done[n]}", dice)
                self._done[n] += 1
        except BaseException as problem:
            self._problems.append(problem)

    def _take_turn(self, locks: Holdfast, owner: str, dice: random.Random) -> None:
        asked = boot_time()
        lease = locks.acquire(dice.choice(KEYS), owner=owner, ttl=TTL, timeout=PATIENCE)
        turn = Turn(lease.key, lease.token, boot_time(), asked=asked)
        self.turns.append(turn)
        self._over.wait(dice.random() * 0.02)
        turn.until = trusted(lease)
        with suppress(
            HoldfastError
        ):  # a lost lease, or a store that does not answer: the lease ends by itself
            lease.release()


def trusted(lease: Lease) -> float:
    """Until when its holder trusted a lease, if it leaves it now."""
    return min(boot_time(), lease._holding.kept.trusted_until)


def violations(turns: Iterable[Turn], *, overlaps: bool = False) -> list[str]:
    """Return what may not be: tokens that do not rise in the order of grants, and overlapping trust.

    Where trust *overlaps*, because a clock was set, the next one may be in before its predecessor has heard
    of its own grant. So tokens have to rise there only from who is in to who asks after that.
    """
    wrong = []
    by_key: dict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        by_key[turn.key].append(turn)
    for key, granted in by_key.items():
        granted.sort(key=lambda turn: turn.since)
        for one, two in combinations(granted, 2) if overlaps else pairwise(granted):
            if two.token <= one.token and (one.since < two.asked or not overlaps):
                wrong.append(f"{key}: {two.token} was granted after {one.token}")
            if two.since < one.until and not overlaps:
                wrong.append(f"{key}: {one.token} was trusted {one.until - two.since:.6f} s into {two.token}")
    return wrong


def at_all(url: str, *servers: PostgresServer, **options: str) -> str:
    """Tell the URL of the same database at several servers, whichever of them takes writes."""
    hosts = ",".join(f"{HOST}:{server.port}" for server in servers)
    options = {"target_session_attrs": "read-write", "request_timeout": "2", **options}
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"postgresql://{OWNER}@{hosts}{urlsplit(url).path}?{query}"


def rows(server: AnyServer, url: str, statement: str) -> list[tuple[Any, ...]]:
    return server.execute(statement, urlsplit(url).path[1:])


def tokens(server: AnyServer, url: str) -> dict[str, int]:
    found = rows(server, url, "SELECT lock_key, token FROM holdfast_locks")
    return {key.decode() if isinstance(key, bytes) else key: token for key, token in found}


@contextmanager
def transaction(server: AnyServer, url: str) -> Iterator[Any]:
    """A transaction of an application, in the database that has the locks, at one of the servers."""
    connection: Any
    database = urlsplit(url).path[1:]
    if isinstance(server, PostgresServer):
        connection = psycopg.connect(server.url(database), connect_timeout=10)
    else:
        connection = pymysql.connect(
            host=HOST, port=server.port, user=OWNER, database=database, ssl_disabled=True
        )
    with closing(connection):
        yield connection
        connection.commit()


def until_replayed(standby: PostgresServer) -> None:
    """Wait until a standby shows everything that it has on its disk."""
    eventually(
        lambda: standby.execute("SELECT pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()") == [(True,)]
    )


def detach(standby: PostgresServer, primary: PostgresServer) -> None:
    """Let a standby hear nothing more, as if its network were gone. What it has, it keeps.

    To stop its processes would not do: what they have not read yet is in their sockets, and they would
    read it before a promotion.
    """
    standby.configure(primary_conninfo="")
    eventually(lambda: primary.execute("SELECT count(*) FROM pg_stat_replication") == [(0,)])


def renew(locks: Holdfast, lease: Lease) -> None:
    """Have a lease renewed now, and wait until it was."""
    before = lease._holding.kept.trusted_until
    locks._engine.keeper.hurry(lease._holding.kept.grant.attempt)
    eventually(lambda: lease._holding.kept.trusted_until > before)


class Clock:
    """The clock of a server, which can be set."""

    def __init__(self, server: AnyServer) -> None:
        self._file = server.directory / "clock"
        self._write: Callable[[Any, str], None] = server.write
        self.step(0)
        server.environment |= {
            "LD_PRELOAD": str(faketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # what waits in the server goes by that
        }

    def step(self, seconds: int) -> None:
        """Set it to *seconds* from the real time."""
        new = self._file.with_suffix(".new")
        self._write(new, f"{seconds:+d}")
        new.replace(self._file)  # at once: it is read all the time
