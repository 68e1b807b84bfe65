"""The API as a program in any language sees it: JSON in, JSON out, and problems that say what to do."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from holdfast import __version__, errors
from holdfast.core import wire
from holdfast.server import Limits, ServerSettings
from holdfast.testing.server import ServerThread
from tests.faults.processes import eventually

LIMITS = Limits(body=4000, longest_wait=60.0, longest_ttl=1000.0)


class Answer:
    """What came back."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.text = response.read()

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.text)


class Api:
    """A connection to the server, as any HTTP client has one."""

    def __init__(self, url: str) -> None:
        self._at = urlsplit(url).netloc

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._at, timeout=40)

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        connection = self.connect()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and "Content-Type" not in given:
            given["Content-Type"] = "application/json"
        text = body if isinstance(body, bytes | None) else json.dumps(body)
        connection.request(method, path, text, given)
        try:
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def post(self, path: str, **body: Any) -> Answer:
        return self("POST", path, body)

    def acquire(self, key: str = "nightly", **body: Any) -> Answer:
        return self.post(f"/v1/locks/{quote(key, safe='')}/acquire", **body)

    def take(self, key: str = "nightly", **body: Any) -> dict[str, Any]:
        answer = self.acquire(key, **body)
        assert answer.status == 200, answer.text
        return answer.json

    def release(self, lease: dict[str, Any], **body: Any) -> Answer:
        path = f"/v1/locks/{quote(lease['key'], safe='')}/release"
        return self.post(path, attempt=lease["attempt"], token=lease["token"], **body)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ServerThread(ServerSettings(url="memory://", port=0, limits=LIMITS, log_level="error")) as running:
        yield running.server.url


@pytest.fixture
def api(server: str) -> Api:
    return Api(server)


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """Each test has its own."""
    return request.node.name


def test_a_lock_is_taken_looked_at_renewed_and_released(api: Api, key: str) -> None:
    lease = api.take(key, owner="ann", ttl=60)
    assert (lease["answer"], lease["key"], lease["owner"], lease["holds"]) == ("granted", key, "ann", 1)
    view = api("GET", f"/v1/locks/{key}").json
    assert (view["answer"], view["state"], view["holder"]["owner"]) == ("lock_view", "held", "ann")
    one = {"key": key, "attempt": lease["attempt"], "token": lease["token"], "ttl": 90}
    renewed = api.post("/v1/renew", leases=[one]).json
    assert renewed["leases"][0]["outcome"] == "renewed"
    assert api.release(lease).json == {"answer": "released", "holds": 0, "next": None, "told": 0}
    again = api.release(lease)
    assert again.status == 409
    assert (again.json["error"], again.json["because"]["answer"]) == ("NotHeld", "not_held")


def test_who_is_refused_learns_who_has_it(api: Api, key: str) -> None:
    lease = api.take(key, owner="ann", ttl=60)
    busy = api.acquire(key)
    assert busy.status == 409
    assert busy.headers["Content-Type"] == "application/problem+json"
    problem = busy.json
    assert problem["error"] == "LockTimeout"
    assert problem["type"] == "urn:holdfast:error:LockTimeout"
    assert problem["holder"]["owner"] == "ann"
    assert f"'{key}' is held by ann" in problem["detail"]
    assert problem["because"]["answer"] == "busy"
    assert lease["attempt"] not in busy.text.decode()  # a secret of its holder


def test_the_server_makes_up_what_is_not_said(api: Api, key: str) -> None:
    lease = api.take(key)
    assert re.fullmatch("[0-9a-f]{32}", lease["attempt"])
    assert re.fullmatch("anonymous-[0-9a-f]{12}", lease["owner"])
    assert lease["expires_in"] == 30.0


def test_asking_twice_with_one_attempt_is_asking_once(api: Api, key: str) -> None:
    """P6: a lost answer is simply asked for again, with or without an owner."""
    first, second = api.take(key, attempt="mine-1"), api.take(key, attempt="mine-1")
    assert first["token"] == second["token"]
    assert first["owner"] == second["owner"]
    assert second["holds"] == 1


def test_an_attempt_that_has_ended_is_told_to_ask_with_a_new_one(api: Api, key: str) -> None:
    token = api("POST", f"/v1/locks/{key}/acquire", {"attempt": "a-1"}).json["token"]
    api("POST", f"/v1/locks/{key}/release", {"attempt": "a-1", "token": token})
    again = api("POST", f"/v1/locks/{key}/acquire", {"attempt": "a-1"})
    assert (again.status, again.json["why"]) == (409, "already")
    assert "ask with a new one" in again.json["detail"]


def test_a_place_in_the_queue_is_kept_for_who_comes_back(api: Api, key: str) -> None:
    lease = api.take(key)
    assert api.acquire(key, attempt="b-1", wait=True).json["position"] == 1
    assert api.acquire(key, attempt="c-1", wait=True).json["position"] == 2
    queued = api.acquire(key, attempt="b-1", wait=True)
    assert (queued.status, queued.json["answer"], queued.json["position"]) == (202, "queued", 1)
    assert api.release(lease).json["next"] == queued.json["owner"]
    assert api.acquire(key, attempt="b-1", wait=True).status == 200


def test_the_server_waits_for_whom_it_is_asked_to(api: Api, key: str) -> None:
    lease = api.take(key)
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(api.acquire(key, timeout=30)))
    thread.start()
    eventually(lambda: api("GET", f"/v1/locks/{key}").json["waiting"] == 1)
    api.release(lease)
    thread.join()
    assert answers[0].status == 200
    assert answers[0].json["token"] > lease["token"]


def test_who_waited_in_vain_leaves_nothing_behind(api: Api, key: str) -> None:
    api.take(key, owner="ann")
    answer = api.acquire(key, timeout=0.2)
    assert answer.status == 409
    assert answer.json["error"] == "LockTimeout"
    assert answer.json["position"] == 1
    assert api("GET", f"/v1/locks/{key}").json["waiting"] == 0


def test_who_waited_in_vain_may_keep_its_place(api: Api, key: str) -> None:
    api.take(key)
    answer = api.acquire(key, attempt="b-1", wait=True, timeout=0.2)
    assert (answer.status, answer.json["position"]) == (202, 1)
    assert api("GET", f"/v1/locks/{key}").json["waiting"] == 1
    assert api.post(f"/v1/locks/{key}/withdraw", attempt="b-1").json["answer"] == "withdrawn"


def test_an_operation_is_told_to_all_who_wait(api: Api, key: str) -> None:
    lease = api.take(key, operation=True)
    api.acquire(key, attempt="b-1", wait=True, operation=True)
    told = api.release(lease, outcome={"succeeded": True, "text": '{"size": 7}'})
    assert told.json["told"] == 1
    done = api.acquire(key, attempt="b-1", wait=True, operation=True)
    assert (done.status, done.json["answer"], done.json["result"]) == (200, "done", '{"size": 7}')


def test_an_operation_that_failed_too_often_is_told_so(api: Api, key: str) -> None:
    lease = api.take(key, operation=True, max_attempts=1, owner="ann")
    api.acquire(key, attempt="b-1", wait=True, operation=True, max_attempts=1)
    api.release(lease, outcome={"succeeded": False, "text": "no space left"})
    failed = api.acquire(key, attempt="b-1", wait=True, operation=True, max_attempts=1)
    assert (failed.status, failed.json["error"]) == (409, "OperationFailed")
    assert failed.json["failures"][0]["error"] == "no space left"


def test_semaphores_and_shared_locks_are_asked_for_by_name(api: Api, key: str) -> None:
    for name in ("ann", "bob"):
        api.take(f"{key}:gpu", owner=name, mode="permits", permits=2)
    assert api.acquire(f"{key}:gpu", owner="cyd", mode="permits", permits=2).status == 409
    wrong = api.acquire(f"{key}:gpu", owner="cyd", mode="permits", permits=3)
    assert (wrong.status, wrong.json["error"], wrong.json["stored"]) == (409, "CapacityMismatch", 2)
    assert api.post(f"/v1/locks/{key}:gpu/resize", permits=3).json["permits"] == 3
    exclusive = api.take(key, owner="ann")
    path = f"/v1/locks/{key}/downgrade"
    shared = api.post(path, attempt=exclusive["attempt"], token=exclusive["token"])
    assert shared.json["token"] == exclusive["token"]
    assert api.take(key, owner="bob", mode="shared")["answer"] == "granted"
    assert api.acquire(key, owner="bob").json["error"] == "UpgradeRefused"


def test_permits_make_a_semaphore_and_nothing_else_has_any(api: Api, key: str) -> None:
    for _ in range(2):
        assert api.take(key, permits=2)["answer"] == "granted"
    assert api.acquire(key, permits=2).status == 409
    for mode in ("exclusive", "shared"):
        wrong = api.acquire(key, permits=2, mode=mode)
        assert (wrong.status, mode in wrong.json["detail"]) == (422, True)


def test_a_broken_lock_is_in_the_history(api: Api, key: str) -> None:
    api.take(key, owner="ann")
    broken = api.post(f"/v1/locks/{key}/break", reason="stuck since noon", by="olga")
    assert broken.json["holder"]["owner"] == "ann"
    history = api("GET", f"/v1/locks/{key}/history").json
    assert [(event["kind"], event["by"], event["reason"]) for event in history["items"]] == [
        ("broken", "olga", "stuck since noon")
    ]


def test_callers_say_how_much_history_is_kept_of_what_they_do(api: Api, key: str) -> None:
    path = f"/v1/locks/{key}/acquire"
    api("POST", path, {"owner": "ann"}, Holdfast_History="all")
    events = api("GET", f"/v1/locks/{key}/history").json["items"]
    assert [event["kind"] for event in events] == ["granted"]
    wrong = api("POST", path, {"owner": "ann"}, Holdfast_History="some")
    assert (wrong.status, "Holdfast-History" in wrong.json["detail"]) == (422, True)


def test_many_locks_are_listed_a_page_at_a_time(api: Api, key: str) -> None:
    for n in range(5):
        api.take(f"{key}:{n}", owner=f"o{n}")
    found, after = [], ""
    while after is not None:
        page = api("GET", f"/v1/locks?prefix={key}:&limit=2&after={after}").json
        found += [lock["key"] for lock in page["locks"]]
        after = page["after"]
    assert found == [f"{key}:{n}" for n in range(5)]
    one = api("GET", f"/v1/locks?prefix={key}&owner=o3").json["locks"]
    assert [lock["key"] for lock in one] == [f"{key}:3"]


def test_events_are_read_behind_a_place(api: Api, key: str) -> None:
    place = api("GET", "/v1/events").json["after"]
    for n in range(3):
        lease = api.take(f"{key}:{n}", operation=True)
        api.release(lease, outcome={"succeeded": True, "text": "null"})
    feed = api("GET", f"/v1/events?prefix={key}&after={place}").json
    assert [event["kind"] for event in feed["events"]] == ["granted", "completed"] * 3
    one = api("GET", f"/v1/events?key={key}:1&after={place}").json
    assert {event["key"] for event in one["events"]} == {f"{key}:1"}
    both = api("GET", f"/v1/events?key={key}:1&prefix=other&after={place}").json
    assert both == one


@pytest.mark.parametrize(
    "hostile", ["a/b", "..", ".", "a b", "100%", "<script>", "é", "x" * 255, "a?b&c=d#e", "+"]
)
def test_a_key_may_be_anything_that_can_be_printed(api: Api, hostile: str) -> None:
    lease = api.take(hostile, owner="ann")
    assert lease["key"] == hostile
    assert api("GET", f"/v1/locks/{quote(hostile, safe='')}").json["key"] == hostile
    assert api.release(lease).status == 200


def test_a_lock_that_nobody_used_is_not_found(api: Api) -> None:
    answer = api("GET", "/v1/locks/never")
    assert (answer.status, answer.json["because"]) == (404, {"answer": "nothing"})


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 422, "must be an object"),
        (b'{"ttl": "long"}', 422, 'ttl is "long"; it must be a number'),
        (b'{"ttl": 0}', 422, "ttl is 0"),
        (b'{"ttl": 1e9}', 429, "ttl is 1e+09 s; here it must be 1000 s at most"),
        (b'{"ttl": 0.001}', 429, "0.1 s at least"),
        (b'{"timeout": 3600}', 429, "ask again with the same attempt and wait=true"),
        (b'{"colour": "red"}', 422, "one of those that are known"),
        (b'{"now": 17}', 422, "now is for tests"),
        (b'{"owner": "a\\nb"}', 422, "cannot be printed"),
        (b'{"client": {"instance": "../etc"}}', 422, "instance"),
        (b'{"mode": "mine"}', 422, "one of exclusive, shared, permits"),
        (b'{"x": "' + b"y" * 5000 + b'"}', 413, "4000"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    api: Api, key: str, body: bytes, status: int, says: str
) -> None:
    answer = api("POST", f"/v1/locks/{quote(key, safe='')[:200]}/acquire", body)
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert says in answer.json["detail"]
    assert answer.json["status"] == status


def test_a_body_must_say_that_it_is_json(api: Api) -> None:
    """And a page of another site cannot: its browser would have to ask us first."""
    answer = api("POST", "/v1/locks/x/acquire", b"{}", Content_Type="text/plain")
    assert answer.status == 415


def test_another_method_and_another_path_are_told_what_there_is(api: Api) -> None:
    wrong = api("DELETE", "/v1/locks/x")
    assert (wrong.status, wrong.headers["Allow"]) == (405, "GET, HEAD")
    assert "/openapi.json" in api("GET", "/v1/lock").json["detail"]


def test_the_server_says_what_it_is(api: Api) -> None:
    told = api("GET", "/v1/server").json
    assert (told["version"], told["authentication"], told["store"]["kind"]) == (__version__, False, "memory")
    assert told["principal"] == {"name": "", "rights": ["admin:*"]}
    assert told["limits"]["body"] == 4000
    assert api("GET", "/healthz").json["status"] == "alive"
    assert api("GET", "/readyz").json["status"] == "ready"
    assert b"holdfast_requests_total" in api("GET", "/metrics").text
    assert api("GET", "/openapi.json").json["openapi"] == "3.1.0"


def test_the_dashboard_comes_with_a_policy_that_runs_nothing_else(api: Api) -> None:
    page = api("GET", "/")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = page.headers["Content-Security-Policy"].split("; ")
    assert "default-src 'self'" in policy
    assert "base-uri 'none'" in policy
    assert "form-action 'self'" in policy
    assert api("GET", "/", If_None_Match=page.headers["ETag"]).status == 304
    assert api("GET", "/dashboard/..%2F..%2Fmain.py").status == 404


def test_every_answer_has_an_id_to_find_it_by(api: Api) -> None:
    ids = {api("GET", path).headers["Holdfast-Request-Id"] for path in ("/healthz", "/nowhere", "/v1/server")}
    assert len(ids) == 3


def test_what_the_python_client_makes_of_a_problem_is_the_error_itself(api: Api, key: str) -> None:
    answer = api.acquire("")
    assert isinstance(wire.error_from_json(answer.status, answer.json), errors.InvalidKey)


def test_a_waiter_may_listen_until_it_has_the_lock(api: Api, key: str) -> None:
    lease = api.take(key)
    connection = api.connect()
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    body = json.dumps({"attempt": "b-1", "wait": True})
    connection.request("POST", f"/v1/locks/{key}/acquire", body, headers)
    stream = connection.getresponse()
    assert stream.headers["Content-Type"].startswith("text/event-stream")
    queued = read_event(stream)
    assert (queued[0], queued[1]["position"], queued[1]["attempt"]) == ("queued", 1, "b-1")
    api.release(lease)
    kind, told = read_event(stream)
    assert (kind, told["answer"], told["attempt"]) == ("granted", "granted", "b-1")
    assert told["token"] > lease["token"]
    assert stream.read() == b""  # and that is all
    connection.close()


def read_event(stream: http.client.HTTPResponse) -> tuple[str, dict[str, Any]]:
    """Return the next event of a stream that is one."""
    kind = ""
    while line := stream.readline().decode().rstrip("\n"):
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data = json.loads(line.removeprefix("data: "))
    return (kind, data) if kind else read_event(stream)
