"""Instances and their work as a program in any language sees them: JSON in, JSON out, and problems."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.core.cluster import LARGEST_DATA, MOST_OFFERED
from holdfast.server import Limits, ServerSettings
from holdfast.testing.server import ServerThread
from tests.faults.processes import eventually
from tests.server.test_api import Answer, Api

LIMITS = Limits(body=400_000, longest_ttl=1000.0, shortest_ttl=0.01)
_numbers = itertools.count(1)


class Engine:
    """An instance as somebody writes one with an HTTP client."""

    def __init__(self, api: Api, **body: Any) -> None:
        self.api = api
        self.id = f"engine-{next(_numbers)}"
        self.claims = itertools.count(1)
        self.answer = api.post("/v1/instances", id=self.id, **body)
        assert self.answer.status == 200, self.answer.text

    def post(self, what: str, **body: Any) -> Answer:
        return self.api.post(f"/v1/instances/{self.id}/{what}", **body)

    def claim(self, *types: str, **body: Any) -> Answer:
        number = next(self.claims)
        body = {"number": number, "attempt": f"{self.id}-{number}", "types": types, "limit": 100} | body
        return self.post("claim", **body)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    settings = ServerSettings(url="memory://", port=0, limits=LIMITS, log_level="error", history="all")
    with ServerThread(settings) as running:
        yield running.server.url


@pytest.fixture
def api(server: str) -> Api:
    return Api(server)


@pytest.fixture
def kind() -> str:
    """Each test has work of its own type."""
    return f"type-{next(_numbers)}"


def work(key: str, what: str = "") -> str:
    return f"/v1/work/{quote(key, safe='')}{what}"


def offer(api: Api, *keys: str, **more: Any) -> dict[str, Any]:
    answer = api.post("/v1/work", works=[{"key": key, **more} for key in keys])
    assert answer.status == 200, answer.text
    return answer.json


def finish(api: Api, given: dict[str, Any], ending: str = "completed", **body: Any) -> Answer:
    lease = {"attempt": given["attempt"], "token": given["token"]}
    return api.post(work(given["key"], "/finish"), ending=ending, **lease, **body)


def test_work_is_offered_claimed_fenced_by_its_token_and_finished(api: Api, kind: str) -> None:
    keys = [f"{kind}:{number}" for number in range(3)]
    said = offer(api, *keys, data='{"n": 1}', max_tries=3)
    assert said == {"answer": "offered", "states": ["offered"] * 3, "new": [True] * 3}
    engine = Engine(api, name="engine", capacity=2)
    first = engine.answer.json
    assert (first["answer"], first["state"], first["id"]) == ("beat", "alive", engine.id)
    claimed = engine.claim(kind).json
    assert claimed["answer"] == "claimed"
    assert [each["key"] for each in claimed["works"]] == keys[:2]  # it can have two
    given = claimed["works"][0]
    assert (given["attempt"], given["data"], given["tries"]) == (f"{engine.id}-1.0", '{"n": 1}', 1)
    assert api("GET", f"/v1/locks/{keys[0]}").json["token"] == given["token"]
    renewal = {name: given[name] for name in ("key", "attempt", "token")} | {"ttl": 60}
    assert api.post("/v1/renew", leases=[renewal]).json["leases"][0]["outcome"] == "renewed"
    view = api("GET", work(keys[0])).json
    assert (view["answer"], view["state"], view["instance"]) == ("work_view", "assigned", engine.id)
    done = finish(api, given, text='"fine"')
    assert (done.status, done.json) == (200, {"answer": "finished", "state": "completed", "next": None})
    again = finish(api, given, text='"fine"')
    assert (again.status, again.json["error"], again.json["why"]) == (409, "NotHeld", "already")
    assert api("GET", work(keys[0])).json["text"] == '"fine"'
    assert [each["key"] for each in engine.claim(kind).json["works"]] == [keys[2]]
    listed = {each["id"]: each for each in api("GET", "/v1/instances?limit=1000").json["instances"]}
    assert (listed[engine.id]["assigned"], listed[engine.id]["capacity"]) == (2, 2)
    assert listed[engine.id]["host"] == "127.0.0.1"  # whence it came, as nobody has said


def test_a_claim_whose_answer_was_lost_is_asked_again_with_its_number(api: Api, kind: str) -> None:
    offer(api, f"{kind}:1")
    engine = Engine(api)
    body = {"number": 7, "attempt": "lost", "types": [kind]}
    first, second = (engine.post("claim", **body).json["works"] for _ in range(2))
    assert [each["token"] for each in first] == [each["token"] for each in second]


def test_what_is_known_stays_as_it_is_unless_it_has_ended(api: Api, kind: str) -> None:
    offer(api, f"{kind}:1", data="1")
    assert offer(api, f"{kind}:1", f"{kind}:2", data="2")["new"] == [False, True]
    assert api("GET", work(f"{kind}:1")).json["data"] == "1"
    (given,) = (Engine(api).claim(kind, limit=1)).json["works"]
    assert finish(api, given, "failed", text="no such file").json["state"] == "failed"
    assert offer(api, f"{kind}:1")["states"] == ["failed"]
    again = api.post("/v1/work", works=[{"key": f"{kind}:1"}], again=True).json
    assert (again["states"], again["new"]) == (["offered"], [True])


def test_failed_work_is_tried_again_and_given_back_work_at_once(api: Api, kind: str) -> None:
    key = f"{kind}:1"
    offer(api, key, max_tries=2)
    engine = Engine(api)
    (given,) = engine.claim(kind).json["works"]
    assert finish(api, given, "returned").json["state"] == "offered"
    (given,) = engine.claim(kind).json["works"]
    assert given["tries"] == 1  # what was returned was not tried
    assert finish(api, given, "failed", text="once", retry=0).json["state"] == "offered"
    (given,) = engine.claim(kind).json["works"]
    assert finish(api, given, "failed", text="twice", retry=0).json["state"] == "failed"
    view = api("GET", work(key)).json
    assert (view["state"], view["text"], view["tries"]) == ("failed", "twice", 2)


def test_a_member_that_drains_takes_nothing_and_one_that_leaves_returns_what_it_has(
    api: Api, kind: str
) -> None:
    offer(api, f"{kind}:1", f"{kind}:2")
    first, second = Engine(api, capacity=1), Engine(api)
    assert len(first.claim(kind).json["works"]) == 1
    assert first.post("heartbeat", drain=True).json["state"] == "draining"
    refused = first.claim(kind)
    assert (refused.status, refused.json["error"], refused.json["id"]) == (410, "InstanceLost", first.id)
    assert refused.json["because"]["state"] == "draining"
    assert "draining" in refused.json["detail"]
    assert len(second.claim(kind).json["works"]) == 1
    left = first.post("leave")
    assert (left.status, left.json["state"]) == (200, "left")
    assert [each["key"] for each in second.claim(kind).json["works"]] == [f"{kind}:1"]
    assert first.post("leave").json["state"] == "left"
    for refused in (first.post("heartbeat"), first.claim(kind), api.post("/v1/instances", id=first.id)):
        assert (refused.status, refused.json["because"]["state"]) == (410, "left")


def test_an_instance_that_nobody_knows_is_dead(api: Api, kind: str) -> None:
    for what in ("heartbeat", "claim"):
        body = {"number": 1, "attempt": "a", "types": [kind]} if what == "claim" else {}
        answer = api.post(f"/v1/instances/never-{kind}/{what}", **body)
        assert (answer.status, answer.json["error"]) == (410, "InstanceLost")
        assert answer.json["because"]["state"] == "dead"
    assert api.post(f"/v1/instances/never-{kind}/leave").json["state"] == "dead"


def test_work_is_assigned_by_its_key(api: Api, kind: str) -> None:
    key = f"{kind}:1"
    engine = Engine(api, capacity=1)
    body = {"attempt": "mine-1", "id": engine.id, "data": "[1, 2]", "ttl": 60}
    given = api.post(work(key, "/assign"), **body)
    assert (given.status, given.json["answer"], given.json["data"]) == (200, "assigned", "[1, 2]")
    assert api.post(work(key, "/assign"), **body).json["token"] == given.json["token"]
    assert api("GET", f"/v1/locks/{key}").json["holder"]["owner"] == engine.id
    full = api.post(work(f"{kind}:2", "/assign"), attempt="mine-2", id=engine.id)
    assert (full.status, full.json["error"], full.json["capacity"]) == (409, "AtCapacity", 1)
    assert full.json["because"] == {"answer": "full", "capacity": 1}
    busy = api.post(work(key, "/assign"), attempt="theirs", owner="ann")
    assert (busy.status, busy.json["error"], busy.json["holder"]["owner"]) == (409, "LockTimeout", engine.id)
    held = api("DELETE", work(key))
    assert (held.status, held.json["because"]["answer"]) == (409, "busy")
    finish(api, given.json, text="7")
    ended = api.post(work(key, "/assign"), attempt="mine-3")
    assert (ended.status, ended.json["error"], ended.json["state"]) == (409, "WorkEnded", "completed")
    assert ended.json["because"]["work"]["text"] == "7"
    late = api.post(work(key, "/assign"), attempt="mine-1")
    assert (late.status, late.json["error"]) == (409, "NotHeld")
    begun = api.post(work(key, "/assign"), attempt="mine-4", again=True, owner="ann").json
    assert begun["tries"] == 1
    assert api("GET", f"/v1/locks/{key}").json["holder"]["owner"] == "ann"
    gone = api.post(work(f"{kind}:3", "/assign"), attempt="mine-5", id=f"never-{kind}")
    assert (gone.status, gone.json["error"]) == (410, "InstanceLost")


def test_nobody_begins_before_its_time_what_is_to_be_due(api: Api, kind: str) -> None:
    key = f"{kind}:1"
    offer(api, key, delay=600)
    early = api.post(work(key, "/assign"), attempt="a-1", due=True)
    assert (early.status, early.json["because"]["answer"]) == (409, "not_due")
    assert 0 < early.json["because"]["due_in"] <= 600
    claimed = Engine(api).claim(kind).json
    assert claimed["works"] == []
    assert 0 < claimed["again_in"] <= 600
    assert api.post(work(key, "/assign"), attempt="a-2").status == 200


def test_work_is_forgotten_once(api: Api, kind: str) -> None:
    key = f"{kind}:1"
    offer(api, key, data='"x"')
    gone = api("DELETE", work(key)).json
    assert (gone["answer"], gone["work"]["key"], gone["work"]["data"]) == ("ended", key, '"x"')
    for method in ("DELETE", "GET"):
        nothing = api(method, work(key))
        assert (nothing.status, nothing.json["because"]) == (404, {"answer": "nothing"})


def test_work_is_listed_a_page_at_a_time_and_counted(api: Api, kind: str) -> None:
    keys = [f"{kind}:{number}" for number in range(5)]
    offer(api, *keys)
    engine = Engine(api)
    given = engine.claim(kind, limit=2).json["works"]
    finish(api, given[0], "failed", text="no")
    seen, after = [], ""
    while after is not None:
        page = api("GET", f"/v1/work?prefix={kind}:&limit=2&after={quote(after)}").json
        seen += [each["key"] for each in page["works"]]
        after = page["after"]
    assert seen == keys
    of = f"/v1/work?prefix={kind}:&"
    assert [each["key"] for each in api("GET", f"{of}state=failed").json["works"]] == [keys[0]]
    assert len(api("GET", f"{of}instance={engine.id}").json["works"]) == 2
    assert len(api("GET", f"{of}instance=").json["works"]) == 3  # nobody ever had them
    counts = {each["type"]: each for each in api("GET", "/v1/work-counts").json["items"]}
    told = {name: counts[kind][name] for name in ("offered", "assigned", "failed")}
    assert told == {"offered": 3, "assigned": 1, "failed": 1}
    assert counts[kind]["waiting"] >= 0


def test_events_tell_of_instances_and_of_work(api: Api, kind: str) -> None:
    place = api("GET", "/v1/events").json["after"]
    engine = Engine(api)
    offer(api, f"{kind}:1")
    (given,) = engine.claim(kind).json["works"]
    finish(api, given, "returned")
    engine.post("heartbeat", drain=True)
    engine.post("leave")

    def kinds(key: str) -> list[str]:
        return [each["kind"] for each in api("GET", f"/v1/events?key={key}&after={place}").json["events"]]

    assert eventually(lambda: kinds(f"instance:{engine.id}") == ["joined", "draining", "left"])
    assert eventually(lambda: kinds(f"{kind}:1") == ["assigned", "returned"])
    history = api("GET", f"/v1/locks/instance:{engine.id}/history").json["items"]
    assert {each["owner"] for each in history} == {engine.id}


def test_figures_tell_of_instances_and_of_work(server: str, api: Api, kind: str) -> None:
    def figures() -> str:
        return api("GET", "/metrics").text.decode()

    offer(api, f"{kind}:1", f"{kind}:2")
    engine = Engine(api)
    (given,) = engine.claim(kind, limit=1).json["works"]
    wanted = [f'holdfast_work{{type="{kind}",state="{state}"}} 1' for state in ("offered", "assigned")]
    # They are at most some seconds old.
    assert eventually(lambda: all(line in figures() for line in wanted))
    assert f'holdfast_work_waiting_seconds{{type="{kind}"}}' in figures()
    assert 'holdfast_instances{state="alive"}' in figures()
    finish(api, given, text="1")
    assert 'holdfast_claims_total{outcome="work"}' in figures()
    assert 'holdfast_finishes_total{outcome="completed"}' in figures()


def test_an_offer_wakes_who_waits_for_such_work(api: Api, kind: str) -> None:
    connection = api.connect()
    connection.request("GET", "/v1/signals?instance=engine")
    stream = connection.getresponse()

    def data() -> dict[str, Any]:
        while not (line := stream.readline().decode()).startswith("data: "):
            assert line, "the stream has ended"
        return json.loads(line.removeprefix("data: "))

    client = {"instance": data()["address"], "host": "h", "pid": 1}
    engine = Engine(api)
    assert engine.claim(kind, client=client).json == {"answer": "claimed", "works": [], "again_in": None}
    offer(api, f"{kind}:1")
    assert data() == {"kind": "work", "key": kind, "attempt": engine.id, "expires_in": 0.0}
    connection.close()


@pytest.mark.parametrize("what", ["finish", "leave"])
def test_what_gives_work_back_is_done_though_its_caller_has_gone(what: str, tmp_path: Path) -> None:
    """Others wait for it. The store is busy when it comes, and free again when the line is closed."""
    settings = ServerSettings(url=f"sqlite:///{tmp_path}/locks.db", port=0, log_level="error")
    with ServerThread(settings) as running:
        api = Api(running.server.url)
        engine = Engine(api)
        offer(api, "job:1")
        (given,) = engine.claim("job").json["works"]
        store = running.server._backend._lanes["notable"].store
        busy, free, execute = threading.Event(), threading.Event(), store.execute

        def wait(request: Any) -> Any:
            busy.set()
            assert free.wait(30)
            return execute(request)

        store.execute = wait
        connection, other = api.connect(), api.connect()
        other.request("GET", "/v1/work/job:1")
        assert busy.wait(30)
        body = {"attempt": given["attempt"], "token": given["token"], "ending": "returned"}
        path = work("job:1", "/finish") if what == "finish" else f"/v1/instances/{engine.id}/leave"
        text = json.dumps(body if what == "finish" else {})
        connection.request("POST", path, text, {"Content-Type": "application/json"})
        assert eventually(lambda: running.server._backend.pending == 1)
        connection.close()
        third = api("GET", "/healthz")  # it has seen that the line is closed, if it looks
        assert third.status == 200
        free.set()
        other.getresponse().read()
        other.close()
        assert eventually(lambda: api("GET", work("job:1")).json["state"] == "offered")


# What makes no sense.

JOIN = {"id": "engine"}
CLAIM = {"number": 1, "attempt": "a-1", "types": ["t"]}
WORK = {"key": "t:1"}
ASSIGN = {"attempt": "a-1"}
FINISH = {"attempt": "a-1", "token": 1, "ending": "completed"}
BAD = [
    ("/v1/instances", {}, "has no id"),
    *(
        ("/v1/instances", {"id": id}, "id is")
        for id in ("", "a/b", "a b", "a\nb", "\x00", "é", ".", "..", "x" * 129, 7, None, ["a"])
    ),
    *(
        ("/v1/instances", {**JOIN, "capacity": n}, "capacity is")
        for n in (0, -1, 1.5, "8", True, 10**7, None)
    ),
    *(("/v1/instances", {**JOIN, "ttl": n}, "ttl is") for n in (0, -1, "90", None, 1e300)),
    *(("/v1/instances", {**JOIN, "name": name}, "name is") for name in ("", "a\nb", "x" * 256, 7)),
    ("/v1/instances", {**JOIN, "version": "\x1b[31m"}, "version is"),
    ("/v1/instances", {**JOIN, "state": "alive"}, "a member of the body"),
    ("/v1/instances", {**JOIN, "client": {"instance": "a/b/c"}}, "instance is"),
    ("/v1/instances/engine/heartbeat", {"ttl": -1}, "ttl is"),
    ("/v1/instances/engine/heartbeat", {"drain": "yes"}, "drain is"),
    ("/v1/instances/a%2Fb/heartbeat", {}, "the instance is"),
    ("/v1/instances/a%00b/leave", {}, "the instance is"),
    ("/v1/instances//leave", {}, "the instance is"),
    ("/v1/instances/engine/claim", {}, "has no"),
    *(("/v1/instances/engine/claim", {**CLAIM, "number": n}, "number is") for n in (0, -1, "1", 2**63)),
    *(("/v1/instances/engine/claim", {**CLAIM, "limit": n}, "limit is") for n in (0, -1, 1001, 1e9)),
    *(
        ("/v1/instances/engine/claim", {**CLAIM, "types": types}, "")
        for types in ("t", ["a:b"], ["\n"], [7], [None], ["x"] * 101, ["x" * 255], {"t": 1})
    ),
    ("/v1/instances/engine/claim", {**CLAIM, "spread": -1}, "spread is"),
    ("/v1/instances/engine/claim", {**CLAIM, "attempt": "x" * 251}, "attempt is"),
    ("/v1/work", {}, "has no works"),
    ("/v1/work", {"works": [WORK] * (MOST_OFFERED + 1)}, "a list of at most 1000"),
    ("/v1/work", {"works": {"key": "t:1"}}, "a list of at most 1000"),
    ("/v1/work", {"works": [7]}, "an object"),
    *(("/v1/work", {"works": [{"key": key}]}, "") for key in ("", "a\nb", "x" * 256, 7, None)),
    *(
        ("/v1/work", {"works": [{**WORK, "data": data}]}, "data is")
        for data in ("", "{", "nope", "NaN", "'a'", {"n": 1}, 7, None, "[" * 5000, "\ud800", "1" * 70_000)
    ),
    ("/v1/work", {"works": [{**WORK, "data": json.dumps("é" * 33_000, ensure_ascii=False)}]}, "bytes"),
    *(("/v1/work", {"works": [{**WORK, "max_tries": n}]}, "max_tries is") for n in (-1, 1.5, 2**31, "3")),
    *(("/v1/work", {"works": [{**WORK, "delay": n}]}, "delay is") for n in (-1, "1", 1e300, None)),
    *(("/v1/work", {"works": [{**WORK, "at": n}]}, "at is") for n in (-1, "now", 1e12)),
    ("/v1/work/t:1/assign", {}, "has no attempt"),
    ("/v1/work/t:1/assign", {**ASSIGN, "id": "a/b"}, "id is"),
    ("/v1/work/t:1/assign", {**ASSIGN, "ttl": 0}, "ttl is"),
    ("/v1/work/t:1/assign", {**ASSIGN, "data": "no"}, "data is"),
    ("/v1/work/t:1/finish", {**FINISH, "ending": "lost"}, "one of completed, failed, returned"),
    ("/v1/work/t:1/finish", {**FINISH, "text": "not JSON"}, "text is"),
    ("/v1/work/t:1/finish", {**FINISH, "ending": "failed", "text": "\x00"}, "text is"),
    ("/v1/work/t:1/finish", {**FINISH, "ending": "failed", "text": "é" * 40_000}, "bytes"),
    ("/v1/work/t:1/finish", {**FINISH, "ending": "failed", "text": "x" * (LARGEST_DATA + 1)}, "text is"),
    *(("/v1/work/t:1/finish", {**FINISH, "retry": n}, "retry is") for n in (-1, "1", 1e300)),
    ("/v1/work/t:1/finish", {**FINISH, "token": -1}, "token is"),
]


@pytest.mark.parametrize(("path", "body", "why"), BAD)
def test_what_makes_no_sense_is_refused_with_the_reason(
    api: Api, path: str, body: dict[str, Any], why: str
) -> None:
    answer = api("POST", path, body)
    assert answer.status == 422, answer.text
    assert answer.json["error"] in ("SettingsError", "InvalidKey")
    assert why in answer.json["detail"]
    assert len(answer.json["detail"]) < 300


@pytest.mark.parametrize("text", [b'{"id": "e", "ttl": NaN}', b'{"id": "e", "ttl": Infinity}', b"{", b""])
def test_what_is_no_json_is_told_so(api: Api, text: bytes) -> None:
    answer = api("POST", "/v1/instances", text)
    assert (answer.status, answer.json["error"]) == (400, "RequestRefused")


@pytest.mark.parametrize(
    "query", ["state=lost", "limit=0", "limit=1001", "instance=%0a", "after=%00", "prefix=%0a", "colour=red"]
)
def test_a_query_that_makes_no_sense_is_refused(api: Api, query: str) -> None:
    assert api("GET", f"/v1/work?{query}").status == 422


def test_bounds_are_allowed(api: Api, kind: str) -> None:
    largest = json.dumps("x" * (LARGEST_DATA - 2))
    assert offer(api, f"{kind}:1", data=largest)["new"] == [True]
    assert api("GET", work(f"{kind}:1")).json["data"] == largest
    many = api.post("/v1/work", works=[{"key": f"{kind}:n{n}"} for n in range(MOST_OFFERED)])
    assert sum(many.json["new"]) == MOST_OFFERED
    engine = Engine(api, capacity=1_000_000, name="ü" * 255)
    assert len(engine.claim(kind, limit=1000).json["works"]) == 1000
    assert engine.claim(limit=1).json == {"answer": "claimed", "works": [], "again_in": None}  # of no type


def test_a_body_that_is_too_large_is_refused_as_such(api: Api, kind: str) -> None:
    works = [{"key": f"{kind}:{n}", "data": json.dumps("x" * 60_000)} for n in range(8)]
    answer = api.post("/v1/work", works=works)
    assert (answer.status, answer.json["error"]) == (413, "RequestRefused")
    assert api("GET", f"/v1/work?prefix={kind}:").json["works"] == []


@pytest.mark.parametrize("ttl", [0.001, 1001.0])
def test_an_instance_lives_neither_too_short_nor_too_long(api: Api, ttl: float) -> None:
    for path, body in (
        ("/v1/instances", {**JOIN, "ttl": ttl}),
        ("/v1/instances/engine/claim", {**CLAIM, "ttl": ttl}),
        ("/v1/work/t:1/assign", {**ASSIGN, "ttl": ttl}),
    ):
        answer = api("POST", path, body)
        assert (answer.status, answer.json["error"]) == (429, "LimitExceeded"), answer.text
