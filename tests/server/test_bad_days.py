"""Who has no access token keeps nobody out and fills no log; whatever goes wrong inside is counted."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.core.access import GrantAccess
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.identity import new_client
from holdfast.server import Limits, ServerSettings
from holdfast.server.admission import access
from holdfast.server.backend import Backend
from holdfast.server.locks.views import LockViews
from holdfast.server.system import logs
from holdfast.server.system.logs import LogLimit, ServerLog
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.testing.server import ServerThread
from tests.faults.processes import eventually

SECRET = "b" * 43
TOKEN = f"hf_{'b' * 12}_{SECRET}"
MOST = 20  # connections
PUBLIC = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Place:
    """A server that can be filled, with one access token, and what it logs."""

    def __init__(self, thread: ServerThread) -> None:
        self.text = io.StringIO()
        self.log = thread.server.log = ServerLog("json", "info", self.text)
        self._thread = thread

    @property
    def port(self) -> int:
        return urlsplit(self._thread.server.url).port or 0

    def lines(self, **wanted: Any) -> list[dict[str, Any]]:
        found = map(json.loads, self.text.getvalue().splitlines())
        return [line for line in found if wanted.items() <= line.items()]

    def ask(self, method: str, path: str, body: bytes | None = None, token: str = TOKEN) -> int:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=40)) as connection:
            connection.request(method, path, body, headers)
            return connection.getresponse().status

    def figure(self, name: str) -> float:
        shown = self._thread.server.metrics.render().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in shown if line.startswith(name))

    def connect(self, stack: ExitStack, first: bytes = b"") -> socket.socket:
        made = stack.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=40))
        made.sendall(first)
        return made


@pytest.fixture
def make(tmp_path: Any) -> Iterator[Callable[..., Place]]:
    with ExitStack() as stack:

        def make(**settings: Any) -> Place:
            url = f"memory://{os.urandom(4).hex()}"
            store = stack.enter_context(closing(open_store(url, StoreOptions(new_client()))))
            store.open()
            digest = hashlib.sha256(SECRET.encode()).hexdigest()
            store.execute(GrantAccess("b" * 12, "boss", digest, ("admin:*",)))
            thread = ServerThread(ServerSettings(url=url, port=0, auth="required", **settings))
            place = Place(thread)
            stack.enter_context(thread)
            stack.callback(place.log.close)
            return place

        yield make


@pytest.mark.parametrize("first", [b"", PUBLIC, b"POST /v1/sweep HTTP/1.1\r\nContent-"])
def test_who_has_no_token_cannot_use_up_all_connections(make: Callable[..., Place], first: bytes) -> None:
    """Whatever they do: nothing, what everybody may, or a request without an end."""
    place = make(limits=Limits(connections=MOST))
    with ExitStack() as stack:
        kept = http.client.HTTPConnection("127.0.0.1", place.port, timeout=40)
        stack.callback(kept.close)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        kept.request("GET", "/v1/server", headers=headers)
        assert kept.getresponse().read()
        for _ in range(3 * MOST):
            place.connect(stack, first)
        assert place.ask("GET", "/v1/locks") == 200
        kept.request("GET", "/v1/server", headers=headers)  # and who was there has stayed
        assert kept.getresponse().status == 200
        assert eventually(lambda: place.figure('holdfast_connections_cut_total{why="full"}') >= 2 * MOST)
        assert place.figure("holdfast_strangers ") <= MOST
    place.log.close()
    text = "there are as many connections as there may be (limits.connections, open files)"
    told = [line for line in place.lines(level="warning") if text in line["message"]]
    assert told[0]["remote"] == "127.0.0.1"
    rest = [line["left_out"] for line in told if "left_out" in line]  # several, if this took long
    assert rest
    assert len(told) - len(rest) + sum(rest) == place.figure('holdfast_connections_cut_total{why="full"}')


def test_answers_to_who_is_not_let_in_are_logged_sparingly_and_counted(
    make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each 401 was a line; and after too many bad tokens each 429, and each path that there is not."""
    monkeypatch.setattr("holdfast.server.admission.failures.REFILL", 1e-9)  # however long this takes
    place = make()
    for _ in range(60):
        assert place.ask("GET", "/v1/locks", token="") == 401
        assert place.ask("GET", "/nowhere", token="") == 404
        assert place.ask("GET", "/v1/nowhere") == 404
    for _ in range(30):
        place.ask("GET", "/v1/locks", token="wrong")
    for _ in range(60):
        place.ask("POST", "/v1/locks/x/release", b"{}")  # of somebody who was let in: every one
    assert place.figure("holdfast_auth_failures_total") == 60 + 20
    place.log.close()
    assert len(place.lines(status=422)) == 60
    for status, asked in ((401, 80), (404, 120), (429, 10)):
        lines = place.lines(status=status)
        left_out = sum(
            line["left_out"]
            for line in place.lines(level="warning")
            if f"not let in: {status}" in line["message"]
        )
        assert len(lines) + left_out == asked
        assert left_out or asked <= 10


def test_a_body_that_is_nested_deeply_is_the_callers_mistake(make: Callable[..., Place]) -> None:
    """Some can just be read, and are too deep to be shown: that was a failure that nobody counted."""
    place = make()
    depths = (100, *range(950, 1000), 5000, 100_000)
    for depth in depths:
        deep = b"[" * depth + b"]" * depth
        assert place.ask("POST", "/v1/locks/x/acquire", b'{"attempt":' + deep + b"}") in (400, 422), depth
    assert place.figure('holdfast_requests_total{route="/v1/locks/{key}/acquire"') == len(depths)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/renew", '{"leases": [{"key": %s, "attempt": "a", "token": 1, "ttl": 1}]}'),
        ("/v1/renew", '{"tickets": [{"key": %s, "attempt": "a", "patience": 1}]}'),
        ("/v1/instances/i/claim", '{"number": 1, "attempt": "a", "types": [%s]}'),
        ("/v1/work", '{"works": [{"key": %s}]}'),
        ("/v1/sweep", '{"after": %s}'),
    ],
    ids=["leases", "tickets", "types", "works", "after"],
)
def test_what_should_be_a_key_and_is_nested_is_the_callers_mistake(
    make: Callable[..., Place], path: str, body: str
) -> None:
    """It can be read and shown, and the answer had all of it: that was a failure that nobody counted."""
    place = make()
    for depth in (1, 200, 500, 700, 900):
        nested = "[" * depth + "]" * depth
        assert place.ask("POST", path, (body % nested).encode()) in (400, 422), depth
    assert place.figure("holdfast_requests_total{") == 5


class Unspeakable(HoldfastError):
    def __str__(self) -> str:
        raise ZeroDivisionError("a flaw of ours")


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a flaw of ours"), Unspeakable()], ids=["flaw", "refusal"]
)
def test_whatever_fails_inside_is_counted_and_logged_as_a_request(
    make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Also what fails while the answer is made that says what has failed."""

    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(LockViews, "list", fail)
    place = make()
    assert place.ask("GET", "/v1/locks") == 500
    assert place.figure('holdfast_requests_total{route="/v1/locks",method="GET",status="5xx"}') == 1
    place.log.close()
    (line,) = place.lines(message="request")
    assert (line["status"], line["error"], line["level"]) == (500, "ZeroDivisionError", "error")


def test_what_the_store_says_is_logged_sparingly_for_who_is_not_let_in(
    make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it fails, each token that nobody knows was a line."""

    async def fail(*_: object) -> None:
        error = StoreUnavailable("db-1 is gone")
        error.from_store = True  # type: ignore[attr-defined]
        raise error

    monkeypatch.setattr(logs, "LogLimit", lambda _: LogLimit(lambda: 0.0))  # no second passes
    monkeypatch.setattr(access, "LOOK_AGAIN", 0.0)
    place = make()
    kept = ask_as(place, "admin:*")
    monkeypatch.setattr(Backend, "ask", fail)
    for number in range(15):
        assert place.ask("GET", "/v1/locks", token=f"hf_{number:012x}_{SECRET}") == 503
    for _ in range(15):
        assert kept("GET", "/v1/locks").status == 503
    place.log.close()
    told = [line for line in place.lines(level="warning") if line["message"].endswith(": db-1 is gone")]
    told = [line for line in told if line["message"].startswith("request ")]
    (rest,) = place.lines(message="5 more lines were left out: the store fails for callers not let in")
    assert (len(told), rest["left_out"]) == (10 + 15, 5)  # of who was let in: every one


def ask_as(place: Place, *rights: str, name: str = "ci") -> Callable[..., http.client.HTTPResponse]:
    """Make a token, and return what asks with it."""
    secret, id = os.urandom(16).hex() + "x" * 11, os.urandom(6).hex()
    digest = hashlib.sha256(secret.encode()).hexdigest()
    body = {"id": id, "name": name, "digest": digest, "rights": rights}
    assert place.ask("POST", "/v1/access-tokens", json.dumps(body).encode()) == 200

    def ask(method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        sent = {name.replace("_", "-"): text for name, text in headers.items()}
        sent |= {"Authorization": f"Bearer hf_{id}_{secret}", "Content-Type": "application/json"}
        with closing(http.client.HTTPConnection("127.0.0.1", place.port, timeout=40)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            answer = connection.getresponse()
            answer.told = json.loads(answer.read())  # type: ignore[attr-defined]
            return answer

    return ask


def test_the_history_that_callers_may_ask_for_has_a_ceiling(make: Callable[..., Place]) -> None:
    """With a single key one could fill the disk."""
    place = make()
    mine, admin = ask_as(place, "admin:mine"), ask_as(place, "admin:*", name="root")
    path = "/v1/locks/mine/acquire"
    answer = mine("POST", path, {}, Holdfast_History="all")
    assert answer.status == 403
    assert "may have the history 'notable' kept at most, not 'all'" in answer.told["detail"]  # type: ignore[attr-defined]
    assert mine("POST", path, {"attempt": "a"}, Holdfast_History="notable").status == 200
    assert mine("POST", "/v1/locks/mine/renew", {}, Holdfast_History="none").status != 403
    assert admin("POST", "/v1/locks/other/acquire", {}, Holdfast_History="all").status == 200
    for settings in ({"history": "all"}, {"most_history": "all"}):
        generous = make(**settings)
        assert ask_as(generous, "acquire:mine")("POST", path, {}, Holdfast_History="all").status == 200


def test_an_owner_does_not_give_its_attempt_away(make: Callable[..., Place]) -> None:
    """Not even a short one, of which all could be tried; and asking again is the same owner asking."""
    place, other = make(), make()
    told = []
    for each in (place, place, other):
        answer = ask_as(each, "acquire:*")("POST", "/v1/locks/x/acquire", {"attempt": "7"})
        told.append(answer.told["owner"])  # type: ignore[attr-defined]
    assert told[0] == told[1] != told[2]
    assert hashlib.sha256(b"7").hexdigest()[:12] not in told[0]


def test_rights_with_a_star_in_the_middle_are_refused(make: Callable[..., Place]) -> None:
    body = {"id": "c" * 12, "name": "ci", "digest": "0" * 64, "rights": ["acquire:a*b"]}
    assert make().ask("POST", "/v1/access-tokens", json.dumps(body).encode()) == 422
