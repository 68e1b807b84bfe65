"""Claims on MySQL: instances that never meet, and the fast way beside the general one."""

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest

from holdfast.core.cluster import (
    Assigned,
    Claim,
    Claimed,
    Finish,
    Finished,
    Forget,
    InspectWork,
    Join,
    ListWork,
    Offer,
    OfferedWork,
)
from holdfast.core.data import replace
from holdfast.core.requests import Client, Fence, Fenced, Inspect, Sweep
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.mysql.dialect import MySQLDialect
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.mysql.store import MySQLStore
from holdfast.testing.conformance import CLIENT

INSTANCES = 16
ITEMS = 10_000
BATCH = 10
TTL = 600.0


def offer(store: MySQLStore, *keys: str, now: float | None = None) -> None:
    for start in range(0, len(keys), 1000):
        store.execute(Offer(tuple(OfferedWork(key) for key in keys[start : start + 1000]), now=now))


def join(store: MySQLStore, id: str, *, capacity: int = ITEMS, now: float | None = None) -> None:
    store.execute(Join(id, id, CLIENT, capacity, TTL, now=now))


def claim(
    store: MySQLStore, id: str, number: int, *, limit: int = BATCH, now: float | None = None
) -> Claimed:
    request = Claim(id, number, f"{id}-{number}", ("job",), limit, TTL, CLIENT, now=now)
    answer = store.execute(request)
    assert isinstance(answer, Claimed)
    return answer


def connected(url: str) -> Any:
    """Return somebody's own connection."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname, port=parts.port, user=parts.username, database=parts.path[1:], ssl_disabled=True
    )


def status(session: MySQLSession, name: str) -> int:
    ((_, value),) = session.script(f"SHOW GLOBAL STATUS LIKE '{name}'")
    return int(value)


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have claims take the general way."""
    return lambda: monkeypatch.setattr(MySQLDialect, "claim", lambda *_: None)


@pytest.fixture
def no_general(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no claim take the general way."""

    def refuse(*_: object) -> None:
        raise AssertionError("the general way was taken")

    monkeypatch.setattr("holdfast.stores.sql.rules.claims.claim", refuse)


@pytest.mark.parametrize("way", ["fast", "general"])
def test_instances_never_meet(mariadb_locks, mysql_store, mysql_sessions, general, way):
    """Nothing is claimed twice or left over, and nobody waits for a row that somebody else has."""
    items = ITEMS if way == "fast" else ITEMS // 5
    if way == "general":
        general()
    offer(mysql_store, *(f"job:{number:05d}" for number in range(items)))
    session = mysql_sessions()
    before = [status(session, name) for name in ("Innodb_deadlocks", "Innodb_row_lock_waits")]

    def work(index: int) -> list[Assigned]:
        client = Client(f"claimer-{index}", "host", index)
        store = open_store(f"{mariadb_locks}&signals=off", StoreOptions(client))
        store.open()
        join(store, f"e-{index}")
        taken: list[Assigned] = []
        for number in count(1):
            claimed = claim(store, f"e-{index}", number)
            taken += claimed.works
            if not claimed.works and claimed.again_in != 0.0:
                break
        store.close()
        return taken

    with ThreadPoolExecutor(INSTANCES) as pool:
        taken = [work for works in pool.map(work, range(INSTANCES)) for work in works]
    keys = [work.key for work in taken]
    assert len(set(keys)) == len(keys) == items
    assert len({work.attempt for work in taken}) == items
    after = [status(session, name) for name in ("Innodb_deadlocks", "Innodb_row_lock_waits")]
    assert after == before
    ((held,),) = session.script(
        "SELECT count(*) FROM holdfast_work AS w JOIN holdfast_locks AS l ON l.lock_key = w.work_key"
        " WHERE w.state = 'assigned' AND l.attempt = w.attempt AND l.token = w.token AND l.owner = w.instance"
        " AND l.expires_at = w.due_at AND l.granted_at = w.assigned_at"
    )
    assert held == items


@pytest.mark.parametrize("blocks", [True, False])
def test_the_fast_way_takes_what_there_is(mysql_store, no_general, blocks):
    """Work that is new, and work that was assigned before, whose lock has a row; keys are bytes.

    MariaDB runs it as blocks, and MySQL, which has none, as single statements.
    """
    mysql_store.sessions.use(lambda session: setattr(session, "_has_blocks", blocks))
    keys = ["job:a", "job:A", "job:é", "job:e", "job:🔒", "job: ", "job:", "job:it's", 'job:"\\%s;']
    join(mysql_store, "e-1", now=100.0)
    offer(mysql_store, *keys, now=101.0)
    first = claim(mysql_store, "e-1", 1, now=102.0, limit=len(keys))
    assert sorted(work.key for work in first.works) == sorted(keys)
    for work in first.works[1:]:
        request = Finish(work.key, work.attempt, work.token, "returned", now=103.0)
        assert isinstance(mysql_store.execute(request), Finished)
    offer(mysql_store, "job:new", now=103.0)
    second = claim(mysql_store, "e-1", 2, now=104.0, limit=len(keys))
    assert {work.key for work in second.works} == {*keys, "job:new"} - {first.works[0].key}
    assert [work.attempt for work in second.works] == [f"e-1-2.{place}" for place in range(len(keys))]
    assert {work.token for work in second.works} == {104_000_000}
    views = {view.key: view for view in mysql_store.execute(ListWork(now=104.0)).works}
    for work in (first.works[0], *second.works):
        seen = mysql_store.execute(Inspect(work.key, now=104.0))
        assert (seen.token, seen.holder.owner, views[work.key].token) == (work.token, "e-1", work.token)
        assert (views[work.key].state, views[work.key].tries) == ("assigned", 1)


def test_both_ways_say_the_same(mysql_store, general):
    """Whatever is asked, wanted, held back or left over."""
    answers = []
    for way in ("fast", "general"):
        if way == "general":
            general()
        id = f"e-{way}"
        join(mysql_store, id, capacity=4, now=100.0)
        heard = [claim(mysql_store, id, 1, now=100.5)]
        mysql_store.execute(
            Offer(tuple(OfferedWork(f"job:{way}-{n}", delay=n / 10) for n in range(8)), now=101.0)
        )
        for number, (limit, spread, now) in enumerate(
            [(1, 0.0, 101.0), (5, 4.0, 101.35), (5, 4.0, 102.5), (5, 0.0, 103.0), (5, 0.0, 104.0)], 2
        ):
            request = Claim(id, number, f"a-{number}", ("none", "job"), limit, TTL, CLIENT, spread, now)
            heard.append(mysql_store.execute(request))
        for view in mysql_store.execute(ListWork(prefix=f"job:{way}", now=104.0)).works:
            mysql_store.execute(Forget(view.key, now=1000.0))
        answers.append(
            [
                ([replace(work, key="", attempt=work.attempt[-3:]) for work in each.works], each.again_in)
                for each in heard
            ]
        )
    assert answers[0] == answers[1]
    assert [len(works) for works, _ in answers[0]] == [0, 1, 0, 1, 2, 0]


def test_a_trigger_on_the_instances_does_not_hide_their_capacity(mysql_store, mysql_sessions):
    """A trigger empties the insert id in the server's answer, by which the fast way learns of it."""
    session = mysql_sessions()
    session.script(
        "CREATE TRIGGER audit_instances AFTER UPDATE ON holdfast_instances"
        " FOR EACH ROW SET @seen = NEW.capacity"
    )
    try:
        join(mysql_store, "e-1", capacity=2, now=100.0)
        offer(mysql_store, "job:1", "job:2", "job:3", now=101.0)
        assert [work.key for work in claim(mysql_store, "e-1", 1, now=102.0).works] == ["job:1", "job:2"]
        assert claim(mysql_store, "e-1", 2, now=103.0).works == ()  # it is full
    finally:
        session.script("DROP TRIGGER audit_instances")


def test_a_lock_that_a_transaction_fences_is_put_off(mysql_store, mariadb_locks):
    """Its work was returned, but what the transaction writes must come before whoever is next."""
    join(mysql_store, "e-1", now=100.0)
    offer(mysql_store, "job:1", now=100.0)
    (work,) = claim(mysql_store, "e-1", 1, now=101.0).works
    with contextlib.closing(connected(mariadb_locks)) as theirs:
        fence = Fence("job:1", work.attempt, work.token, now=102.0)
        assert mysql_store.execute_within(theirs, fence) == Fenced(work.token)
        mysql_store.execute(Finish("job:1", work.attempt, work.token, "returned", now=103.0))
        assert claim(mysql_store, "e-1", 2, now=103.5).works == ()
        assert claim(mysql_store, "e-1", 3, now=103.5) == Claimed((), 1.0)
        theirs.commit()
    (again,) = claim(mysql_store, "e-1", 4, now=104.5).works
    assert again.token > work.token


def test_nobody_waits_for_a_lock_in_somebodys_transaction(mysql_store, mariadb_locks):
    """It is put off, and other work is taken meanwhile."""
    join(mysql_store, "e-1", now=100.0)
    offer(mysql_store, "job:1", "job:2", now=100.0)
    first, second = claim(mysql_store, "e-1", 1, now=101.0).works
    mysql_store.execute(Finish("job:1", first.attempt, first.token, "returned", now=102.0))
    mysql_store.execute(Finish("job:2", second.attempt, second.token, "returned", now=102.0))
    with contextlib.closing(connected(mariadb_locks)) as theirs:
        theirs.cursor().execute("SELECT 1 FROM holdfast_locks WHERE lock_key = 'job:1' FOR UPDATE")
        assert [work.key for work in claim(mysql_store, "e-1", 2, now=103.0).works] == ["job:2"]
        assert claim(mysql_store, "e-1", 3, now=103.0) == Claimed((), 1.0)
    assert [work.key for work in claim(mysql_store, "e-1", 4, now=104.0).works] == ["job:1"]


def test_tokens_go_on_where_the_clock_was_set_back(mysql_store):
    """The fast way takes the time for a token. Where that is not enough, the general way is taken."""
    join(mysql_store, "e-1", now=100.0)
    offer(mysql_store, "job:1", now=100.0)
    (first,) = claim(mysql_store, "e-1", 1, now=200.0).works
    mysql_store.execute(Finish("job:1", first.attempt, first.token, "returned", now=200.0, at=100.0))
    (second,) = claim(mysql_store, "e-1", 2, now=150.0).works
    assert second.token == first.token + 1
    mysql_store.execute(Finish("job:1", second.attempt, second.token, "completed", now=200.0))
    mysql_store.execute(Sweep(idle=0.0, keep_history=0.0, now=300.0))
    offer(mysql_store, "job:1", now=150.0)
    assert claim(mysql_store, "e-1", 3, now=150.0).works[0].token == second.token + 1


def test_an_offer_may_be_larger_than_a_packet(mysql_store, mysql_sessions):
    """1000 works of 64 KiB each are."""
    ((most,),) = mysql_sessions().script("SELECT @@max_allowed_packet")
    data = '"' + "锁" * 20_000 + '"'
    works = [OfferedWork(f"job:{number}", data) for number in range(most // len(data.encode()) + 10)]
    offered = mysql_store.execute(Offer((*works, works[0])))
    assert set(offered.states) == {"offered"}
    assert offered.new == (*[True] * len(works), False)
    assert mysql_store.execute(InspectWork(works[-1].key)).data == data
