"""Instances and their work through the HTTP store: where they are woken, what is too large for a body."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from holdfast import errors
from holdfast.core import cluster as c
from holdfast.core import requests as r
from holdfast.core.data import replace
from holdfast.core.wire import POSSIBLE
from holdfast.server import Limits, ServerSettings
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.http import HTTPStore
from holdfast.stores.http.attempts import Attempts
from holdfast.testing.server import ServerThread
from tests.server.scripted import Heard, Scripted, answer, event, plain, problem, until

CLIENT = r.Client("i-1", "alpha", 101)
BEAT = {"answer": "beat", "state": "alive", "expires_in": 90.0, "living": 1, "at": 100.0}
JOIN = c.Join("e-1", "engine", CLIENT, 8, 90.0)
CLAIM = c.Claim("e-1", 1, "a-1", ("job", "task"), 8, 30.0, CLIENT)
ASSIGN = c.Assign("job:1", "b-1", "ann", 30.0, CLIENT)
GIVEN = {"attempt": "a-1.0", "token": 7, "data": "null", "tries": 1, "expires_in": 30.0, "at": 100.0}
NOTHING = {"answer": "claimed", "works": [], "again_in": None}
OFFER = c.Offer(tuple(c.OfferedWork(f"job:{number}", f'"{number}"') for number in range(11)))
WORK = {"kind": "work", "key": "job", "attempt": "e-1", "expires_in": 0.0}

Opened = tuple[HTTPStore, "queue.Queue[r.Signal]"]


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as server:
        for path in ("/v1/instances", "/heartbeat", "/leave"):
            server.always[path] = lambda _: answer(BEAT)
        server.always["/claim"] = lambda _: answer(NOTHING)
        server.always["/assign"] = lambda _: answer({"answer": "assigned", "key": "job:1", **GIVEN})
        server.always["/v1/work"] = offered
        yield server


@pytest.fixture
def open_at() -> Iterator[Callable[[str], Opened]]:
    opened: list[HTTPStore] = []

    def open_at(url: str) -> Opened:
        store = open_store(url, StoreOptions(CLIENT))
        assert isinstance(store, HTTPStore)
        told: queue.Queue[r.Signal] = queue.Queue()
        store.listen(told.put)
        store.open()
        opened.append(store)
        return store, told

    yield open_at
    for store in opened:
        store.close()


def offered(heard: Heard) -> bytes:
    """Answer an offer so that each answer can be told from the others."""
    new = [int(work["key"].partition(":")[2]) % 2 == 0 for work in heard.body["works"]]
    return answer({"answer": "offered", "states": ["offered"] * len(new), "new": new})


@pytest.mark.parametrize("request_", [kind for kind in vars(c).values() if isinstance(kind, type)])
def test_what_is_possible_as_an_answer_is_what_the_request_says(request_: Any) -> None:
    if not issubclass(request_, r.Request) or request_ is r.Request:
        return
    (said,) = get_args(request_.__orig_bases__[0])
    hint = eval(said.__forward_arg__, vars(r) | vars(c))
    if getattr(hint, "__origin__", None) is tuple:
        assert POSSIBLE[request_] == (tuple,)
    else:
        assert set(POSSIBLE[request_]) == set(get_args(hint) or (hint,))


# Where they are woken.


@pytest.mark.parametrize("request_", [JOIN, c.Heartbeat("e-1", CLIENT, 90.0), CLAIM, ASSIGN], ids=repr)
def test_who_can_be_given_work_listens_before_it_asks(server, open_at, request_) -> None:
    store, told = open_at(server.url)
    store.execute(request_)
    stream = server.next("signals")
    heard = server.next("/v1/")
    assert heard.body["client"] == {"instance": f"s1/{stream.connection}", "host": "alpha", "pid": 101}
    server.streams.get().sendall(event("signal", WORK))
    assert told.get(timeout=20) == r.Signal("work", "job", "e-1")


@pytest.mark.parametrize(
    "request_", [OFFER, c.Leave("e-1"), c.ListInstances(), c.Finish("job:1", "a", 7, "completed")], ids=repr
)
def test_who_is_given_nothing_listens_to_nothing(server, open_at, request_) -> None:
    server.always["/v1/instances"] = lambda _: answer({"answer": "instance_page", "instances": []})
    server.always["/finish"] = lambda _: answer({"answer": "finished", "state": "completed"})
    store, _ = open_at(server.url)
    store.execute(request_)
    assert server.streams.empty()


def test_somebody_behind_this_client_is_told_by_its_name(server, open_at) -> None:
    store, told = open_at(server.url)
    behind = replace(CLIENT, instance="i-1/x")
    store.execute(replace(CLAIM, client=behind))
    server.streams.get().sendall(event("signal", WORK))
    assert told.get(timeout=20) == r.Signal("work", "job", "e-1", to="x")
    store.execute(replace(CLAIM, id="e-2", client=r.Client("elsewhere/y", "beta", 7)))
    server.next("/e-1/claim")
    assert server.next("/e-2/claim").body["client"]["instance"] == "elsewhere/y"


def test_who_waits_for_work_claims_again_after_a_break(server, open_at) -> None:
    """Whatever was offered meanwhile was told to the old address, which is nobody's."""
    store, told = open_at(server.url)
    store.execute(CLAIM)
    store.execute(replace(CLAIM, id="e-2", types=("other",)))
    store.execute(c.Leave("e-2"))  # it waits no more
    server.always["/claim"] = lambda _: answer({**NOTHING, "works": [{"key": "job:7", **GIVEN}]})
    store.execute(replace(CLAIM, id="e-3", limit=1))  # it got what it wanted
    server.streams.get()
    server.close_all()
    missed = {told.get(timeout=20) for _ in range(3)}
    assert missed == {
        r.Signal("work", "job", "e-1"),
        r.Signal("work", "task", "e-1"),
        r.Signal("lost", "job:7", "a-1.0"),  # what somebody has is looked after
    }
    assert told.empty()
    server.next("signals")
    again = server.next("signals")
    store.execute(replace(CLAIM, number=2))
    assert server.next("/e-1/claim").body["client"]["instance"] == f"s1/{again.connection}"


def test_a_stream_that_opens_while_somebody_claims_is_said_at_once(server, open_at) -> None:
    store, told = open_at(server.url)
    server.on("/v1/signals", plain("", 503))

    def claimed(_: Heard) -> bytes:
        until(lambda: store._signals.address)
        return answer(NOTHING)

    server.always["/claim"] = claimed
    store.execute(replace(CLAIM, types=("job",)))
    assert told.get(timeout=20) == r.Signal("work", "job", "e-1")


def test_what_is_finished_is_not_looked_after() -> None:
    underway = Attempts()
    given = c.Assigned("job:1", "b-1", 7, "null", 1, 30.0)
    underway.note(ASSIGN, given)
    underway.note(CLAIM, c.Claimed((replace(given, key="job:2", attempt="a-1.0"),)))
    assert {(each.kind, each.key) for each in underway.missed()} == {
        ("lost", "job:1"),
        ("lost", "job:2"),
        ("work", "job"),
        ("work", "task"),
    }
    underway.note(c.Finish("job:1", "b-1", 7, "completed"), c.Finished("completed"))
    underway.note(c.Finish("job:2", "a-1.0", 7, "failed"), r.NotHeld("expired"))
    underway.note(replace(CLAIM, number=2), c.Beat("dead"))
    assert underway.missed() == []
    underway.note(replace(ASSIGN, key="job:3"), c.Full(8))
    assert len(underway) == 0


# What it is told.


def test_a_refusal_is_the_answer_that_it_is_told_with(server, open_at) -> None:
    store, _ = open_at(server.url)
    dead = {**BEAT, "state": "dead"}
    for path, request in (("/claim", CLAIM), ("/v1/instances", JOIN), ("/assign", ASSIGN)):
        server.on(path, problem("InstanceLost", 410, because=dead))
        assert store.execute(request) == c.Beat("dead", 90.0, 1, 100.0)
    server.on("/assign", problem("AtCapacity", 409, because={"answer": "full", "capacity": 3}))
    assert store.execute(ASSIGN) == c.Full(3)
    server.on("/work/job:1", problem("RequestRefused", 404, because={"answer": "nothing"}))
    assert store.execute(c.Forget("job:1")) is None
    assert server.next("/v1/work/job:1").method == "POST"  # the assign
    assert server.next("/v1/work/job:1").method == "POST"
    assert server.next("/v1/work/job:1").method == "DELETE"


# What is too large.


def told_of(offer: c.Offer) -> c.Offered:
    numbers = [int(work.key.partition(":")[2]) for work in offer.works]
    return c.Offered(("offered",) * len(numbers), tuple(number % 2 == 0 for number in numbers))


def test_an_offer_that_is_too_large_for_the_server_goes_in_parts(server, open_at) -> None:
    server.on("/v1/server", answer({"answer": "server", "store": {}, "limits": {"body": 120}}))
    store, _ = open_at(server.url)
    assert store.execute(OFFER) == told_of(OFFER)
    server.next("server")
    sizes = [int(server.heard.get_nowait().headers["content-length"]) for _ in range(server.heard.qsize())]
    assert len(sizes) > 2
    assert max(sizes) <= 120


def test_an_offer_that_is_too_large_for_a_proxy_goes_in_parts(server, open_at) -> None:
    server.always["/v1/work"] = lambda heard: (
        offered(heard) if len(heard.body["works"]) <= 3 else plain("too large", 413)
    )
    store, _ = open_at(server.url)
    assert store.execute(OFFER) == told_of(OFFER)


def test_one_piece_of_work_that_is_too_large_is_refused(server, open_at) -> None:
    server.always["/v1/work"] = lambda _: plain("too large", 413)
    store, _ = open_at(server.url)
    with pytest.raises(errors.RequestRefused):
        store.execute(OFFER)


def test_an_offer_of_which_only_some_was_heard_may_have_been_applied(server, open_at) -> None:
    server.on("/v1/server", answer({"answer": "server", "store": {}, "limits": {"body": 280}}))
    store, _ = open_at(server.url)
    server.on("/v1/work", offered(Heard("", "", {}, {"works": [{"key": "job:1"}] * 5}, 1)))
    server.on("/v1/work", problem("StoreUnavailable", 503))
    with pytest.raises(errors.OutcomeUnknown, match="only some"):
        store.execute(OFFER)
    server.on("/v1/work", problem("StoreUnavailable", 503))
    with pytest.raises(errors.StoreUnavailable):
        store.execute(OFFER)


# A real server.


@pytest.mark.parametrize("behind", ["memory", "sqlite"])
def test_an_offer_through_one_client_wakes_the_instance_of_another(open_at, behind, tmp_path: Path) -> None:
    url = "memory://" if behind == "memory" else f"sqlite:///{tmp_path}/locks.db"
    limits = Limits(body=2000)
    with ServerThread(ServerSettings(url=url, port=0, log_level="error", limits=limits)) as serving:
        engine, told = open_at(serving.server.url)
        other, _ = open_at(serving.server.url)
        assert engine.execute(JOIN).state == "alive"
        assert engine.execute(CLAIM) == c.Claimed((), None)
        many = c.Offer(tuple(c.OfferedWork(f"job:{number:03}") for number in range(200)))
        assert other.execute(many) == c.Offered(("offered",) * 200, (True,) * 200)
        assert told.get(timeout=20) == r.Signal("work", "job", "e-1")
        claimed = engine.execute(replace(CLAIM, number=2))
        assert isinstance(claimed, c.Claimed)
        assert [each.key for each in claimed.works] == [f"job:{number:03}" for number in range(8)]
        assert other.execute(c.InspectWork("job:000")).instance == "e-1"
        assert [each.id for each in other.execute(c.ListInstances()).instances] == ["e-1"]
