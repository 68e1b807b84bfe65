"""Networks between a client and its server: cut, deaf, refusing, and losing the answers to what was done.

Whatever happens to the line, a request ends in the answer or in the documented error, asking again gives the
same grant, and nothing is left behind for longer than its ttl.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from holdfast import Holdfast, OutcomeUnknown, Settings, StoreUnavailable
from holdfast.core.data import replace
from holdfast.core.requests import Acquire
from tests.clients.support import PATIENCE, QUICK, Spy, Stage, ThreadActor, eventually
from tests.faults.conftest import SERVERS
from tests.faults.processes import nobody_can_write
from tests.servers import Proxy, Server
from tests.servers.ports import HOST

STUCK = {
    "postgres": "SELECT count(*) FROM pg_locks WHERE NOT granted",
    # Not from innodb_trx: that is a copy, which is not renewed while it is read every few milliseconds.
    "mariadbd": "SELECT variable_value + 0 FROM information_schema.global_status"
    " WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'",
}
# The tests' own client never waits, and so does not listen.
LISTENING = {
    "postgres": "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'",
    # All listeners wait for a lock that somebody has.
    "mariadbd": "SELECT id FROM information_schema.processlist WHERE id <> connection_id()"
    " AND info LIKE 'SELECT IF(%'",
}
ONLY_SIGNALS = Settings(heartbeat=1000, claim=2000, patience=3000)
TTL = 2.0


class Line:
    """A client behind a proxy, and another that sees what is really so."""

    def __init__(self, kind: str, url: str, server: Server) -> None:
        self.server = server
        self.url = url
        self.proxy = Proxy(HOST, server.port)
        self.through = f"{self.proxy.through(url)}&request_timeout=1"
        self.stage = Stage(kind, self.through)
        self.direct = Holdfast(url, settings=QUICK)

    def look(self, key: str = "nightly") -> Any:
        return self.direct.inspect(key)

    def state(self, key: str = "nightly") -> str:
        view = self.look(key)
        return "free" if view is None else str(view.state)

    def waiting(self, key: str = "nightly") -> int:
        view = self.look(key)
        return 0 if view is None else int(view.waiting)

    def is_stuck(self) -> bool:
        """Tell whether a request waits inside the server."""
        return bool(self.server.execute(STUCK[self.server.program])[0][0])

    def break_off(self, fault: str) -> None:
        if fault == "deaf":
            self.proxy.deaf()
        else:
            self.proxy.refuse()
            self.proxy.cut()

    def end(self) -> None:
        self.proxy.restore()
        self.stage.end()
        self.direct.close()
        self.proxy.close()


@pytest.fixture(params=SERVERS)
def address(request: pytest.FixtureRequest) -> tuple[str, Server]:
    url: str = request.getfixturevalue(f"{request.param}_locks")
    server: Server = request.getfixturevalue(f"{request.param}_server")
    return url, server


@pytest.fixture(params=["sync", "async"])
def line(request: pytest.FixtureRequest, address: tuple[str, Server]) -> Iterator[Line]:
    line = Line(request.param, *address)
    yield line
    line.end()


def warm_up(line: Line, locks: Any = None) -> Any:
    """Have a connection, so that what comes next is a request on it and not a log-in."""
    locks = locks or line.stage.locks
    lease = line.stage.call(locks.acquire, "warm", ttl=60)
    # Until the keeper has made its first round: it would else have that connection when we want it.
    eventually(lambda: math.isfinite(locks._engine.keeper._wake_at))
    line.stage.call(lease.release)
    return locks


# The line is cut.


def test_a_cut_line_is_replaced_without_a_word(line: Line) -> None:
    locks = warm_up(line)
    lease = line.stage.call(locks.acquire, "nightly", ttl=600)
    line.proxy.cut()
    _lease = line.stage.call(locks.acquire, "another", timeout=PATIENCE)
    lease.check()
    line.stage.call(lease.release)
    assert line.state() == "free"


def test_a_request_whose_line_is_cut_is_asked_again_and_gives_one_grant(line: Line) -> None:
    """Cut while the server is at it: it may be applied or not, and the answer to that is to ask again."""
    locks = warm_up(line)
    with nobody_can_write(line.url):
        taking = line.stage.me.start(locks.acquire, "nightly", ttl=600)
        eventually(line.is_stuck)
        line.proxy.cut()
    lease = taking.result(PATIENCE)
    view = line.look()
    assert (view.token, view.holds) == (lease.token, 1)
    line.stage.call(lease.release)
    assert line.state() == "free"


def test_a_waiter_whose_line_is_cut_keeps_its_place(line: Line) -> None:
    patient = replace(QUICK, claim=30.0, patience=60.0)  # a claim may have to wait for a new connection
    locks = warm_up(line, line.stage.client(settings=patient))
    mine = line.direct.acquire("nightly", ttl=600)
    first = line.stage.me.start(locks.acquire, "nightly", ttl=600)
    eventually(lambda: line.waiting() == 1)
    line.proxy.cut()
    behind = ThreadActor("behind")
    second = behind.start(line.direct.acquire, "nightly", ttl=600)
    eventually(lambda: line.waiting() == 2)
    mine.release()
    lease = first.result(PATIENCE)
    assert not second.done()
    line.stage.call(lease.release)
    assert second.result(PATIENCE).token > lease.token
    behind.stop()


# Answers are lost, after the server has done what it was asked.


def test_the_lost_answer_to_a_grant_is_asked_for_again(line: Line) -> None:
    locks = warm_up(line)
    line.proxy.lose_answers()
    taking = line.stage.me.start(locks.acquire, "nightly", ttl=600)
    view = eventually(line.look)
    line.proxy.restore()
    lease = taking.result(PATIENCE)
    assert lease.token == view.token
    assert line.look().holds == 1
    line.stage.call(lease.release)
    assert line.state() == "free"


def test_the_lost_answer_to_a_release_is_asked_for_again(line: Line) -> None:
    locks = warm_up(line)
    lease = line.stage.call(locks.acquire, "nightly", ttl=600)
    line.proxy.lose_answers()
    releasing = line.stage.me.start(lease.release)
    eventually(lambda: line.state() == "free")
    other = line.direct.acquire("nightly", timeout=0)
    line.proxy.restore()
    assert releasing.result(PATIENCE) is None
    other.check()
    assert line.look().token == other.token
    other.release()


def test_the_lost_answer_to_a_ticket_leaves_one_ticket(line: Line) -> None:
    locks = warm_up(line)
    mine = line.direct.acquire("nightly", ttl=600)
    line.proxy.delay(0.15)  # a ticket may take several round trips: only the last answer is to be lost
    waiting = line.stage.me.start(locks.acquire, "nightly", ttl=600)
    eventually(lambda: line.waiting() == 1)
    line.proxy.cut()
    line.proxy.restore()
    eventually(locks._engine.keeper.tickets)  # it was told at last
    assert line.waiting() == 1
    mine.release()
    lease = waiting.result(PATIENCE)
    line.stage.call(lease.release)


def test_a_lease_outlives_lost_answers_to_its_renewals(line: Line) -> None:
    """The server renews and nobody hears of it: an error is not a loss, while there is time to ask again."""
    locks = warm_up(line)
    ttl = 5.0
    lease = line.stage.call(locks.acquire, "nightly", ttl=ttl)
    first = lease._holding.kept.trusted_until
    asked = eventually(
        lambda: lease._holding.kept.trusted_until > first and lease._holding.kept.trusted_until
    )
    line.proxy.lose_answers()
    eventually(lambda: line.look().expires_in < 0.8 * ttl)
    eventually(lambda: line.look().expires_in > 0.8 * ttl)  # it was renewed there
    line.proxy.restore()
    eventually(lambda: lease._holding.kept.trusted_until > asked)
    lease.check()
    line.stage.call(lease.release)


# The server is deaf: it takes connections, and says nothing.


@pytest.mark.parametrize("fault", ["deaf", "refuse"])
def test_asking_a_server_that_does_not_answer_ends_with_the_documented_error(line: Line, fault: str) -> None:
    locks = warm_up(line)
    line.break_off(fault)
    error = line.stage.me.start(locks.acquire, "nightly", ttl=TTL, timeout=1.5).exception(PATIENCE)
    assert isinstance(error, StoreUnavailable | OutcomeUnknown), error
    line.proxy.restore()
    # What was said while it was deaf arrives now: at worst a lease for nobody, which ends with its ttl.
    eventually(lambda: line.state() != "held")
    again = line.stage.call(locks.acquire, "nightly", timeout=PATIENCE)
    line.stage.call(again.release)


@pytest.mark.parametrize("fault", ["deaf", "refuse"])
def test_whoever_asks_while_the_server_is_away_is_served_when_it_is_back(line: Line, fault: str) -> None:
    locks = warm_up(line)
    line.break_off(fault)
    spy = Spy(locks)
    taking = line.stage.me.start(locks.acquire, "nightly", ttl=600)
    eventually(lambda: spy.count(Acquire) >= 2)
    line.proxy.restore()
    lease = taking.result(PATIENCE)
    assert line.look().token == lease.token
    assert line.look().holds == 1


@pytest.mark.parametrize("fault", ["deaf", "refuse"])
def test_a_lease_whose_server_is_away_for_too_long_is_lost_in_time(line: Line, fault: str) -> None:
    """Nobody trusts it longer than the server would, and everybody is told."""
    told: list[Any] = []
    locks = warm_up(line)
    lease = line.stage.call(locks.acquire, "nightly", ttl=TTL, on_lost=told.append)
    line.break_off(fault)
    eventually(lambda: not lease.held)
    other = line.direct.acquire("nightly", timeout=PATIENCE)
    assert other.token > lease.token
    eventually(lambda: told)
    # A renewal that is still under way when the trust ends has not failed yet.
    assert told[0].reason in ("store unreachable", "expired")
    line.proxy.restore()
    other.check()
    _lease = line.stage.call(locks.acquire, "another", timeout=PATIENCE)
    assert line.look().token == other.token


# The listening connection has a line of its own.


class Bell:
    """A client whose listening connection goes through a proxy, and all others do not."""

    def __init__(self, kind: str, url: str, server: Server) -> None:
        self.proxy = Proxy(HOST, server.port)
        self.server = server
        listen = quote(self.proxy.through(url).partition("?")[0], safe="")
        self.stage = Stage(kind, f"{url}&listen={listen}")
        self.direct = Holdfast(url, settings=QUICK)

    def listeners(self) -> set[int]:
        """Tell which sessions of the server listen. Those whose line was cut may be there for a while."""
        return {session for (session,) in self.server.execute(LISTENING[self.server.program])}

    def end(self) -> None:
        self.proxy.restore()
        self.stage.end()
        self.direct.close()
        self.proxy.close()


@pytest.fixture(params=["sync", "async"])
def bell(request: pytest.FixtureRequest, address: tuple[str, Server]) -> Iterator[Bell]:
    bell = Bell(request.param, *address)
    yield bell
    bell.end()


def test_a_listener_whose_line_is_cut_listens_again(bell: Bell) -> None:
    """No heartbeat would come for a quarter of an hour."""
    locks = bell.stage.client(settings=ONLY_SIGNALS)
    for _ in range(2):
        mine = bell.direct.acquire("nightly", ttl=600)
        waiting = bell.stage.me.start(locks.acquire, "nightly", ttl=600)
        eventually(lambda: bell.direct.inspect("nightly").waiting == 1)
        before = eventually(bell.listeners)
        bell.proxy.cut()
        eventually(lambda before=before: bell.listeners() - before)
        mine.release()
        bell.stage.call(waiting.result(PATIENCE).release)


@pytest.mark.parametrize("fault", ["cut", "deaf"])
def test_without_a_listener_heartbeats_do(bell: Bell, fault: str) -> None:
    locks = bell.stage.locks
    mine = bell.direct.acquire("nightly", ttl=600)
    waiting = bell.stage.me.start(locks.acquire, "nightly", ttl=600)
    eventually(lambda: bell.direct.inspect("nightly").waiting == 1)
    if fault == "deaf":
        bell.proxy.deaf()
    else:
        bell.proxy.refuse()
        bell.proxy.cut()
    mine.release()
    lease = waiting.result(PATIENCE)
    lease.check()
    bell.stage.call(lease.release)
