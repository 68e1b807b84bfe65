"""Acquires and releases that take no task: what they are answered, counted and logged is what others are."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import io
import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.core.access import GrantAccess
from holdfast.core.requests import Inspect
from holdfast.errors import StoreUnavailable
from holdfast.identity import new_client
from holdfast.server import Limits, ServerSettings
from holdfast.server.http import connection as module
from holdfast.server.locks.changes import LockChanges
from holdfast.server.system.logs import ServerLog
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.testing.server import ServerThread
from tests.faults.processes import eventually

SECRET = "b" * 43
TOKEN = f"hf_{'b' * 12}_{SECRET}"
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
MINE = {"attempt": "a-1", "owner": "me", "ttl": 30}


class Place:
    """A server where somebody may acquire what begins with my-, and what it logs."""

    def __init__(self, url: str, limits: Limits) -> None:
        self.text = io.StringIO()
        self.thread = ServerThread(
            ServerSettings(url=url, port=0, auth="required", limits=limits, history="notable")
        )
        self.log = self.thread.server.log = ServerLog("json", "debug", self.text)

    @property
    def app(self) -> Any:
        return self.thread.server._app

    @property
    def port(self) -> int:
        return urlsplit(self.thread.server.url).port or 0

    def ask(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        sent = HEADERS | {name.replace("_", "-"): text for name, text in headers.items()}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=40)) as connection:
            connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body), sent)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def has(self) -> dict[str, int]:
        async def has() -> Any:
            account = self.app._budget._accounts["ci"]
            return {"asking": account.asking, "leases": len(account.leases), "tickets": len(account.tickets)}

        return self.thread.run(has())

    def counted(self) -> list[str]:
        names = ("requests_total", "grants_total", "refusals_total", "queued_total", "limits_hit_total")
        names += ("access_denied_total", "auth_failures_total", "handovers_total", "store_seconds_count")
        shown = self.thread.server.metrics.render().decode().splitlines()
        return [
            line for line in shown if line.partition("{")[0].partition(" ")[0][len("holdfast_") :] in names
        ]

    def logged(self) -> list[tuple[Any, ...]]:
        self.log.close()
        found = [json.loads(line) for line in self.text.getvalue().splitlines()]
        return [
            tuple(
                line.get(name) for name in ("level", "method", "route", "status", "principal", "key", "error")
            )
            for line in found
            if line["message"] == "request"
        ]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Place]]:
    with ExitStack() as stack:

        def make(store: str = "sqlite", **limits: Any) -> Place:
            some = os.urandom(4).hex()
            url = f"sqlite:///{tmp_path}/{some}.db" if store == "sqlite" else f"memory://{some}"
            kept = stack.enter_context(closing(open_store(url, StoreOptions(new_client()))))
            kept.open()
            digest = hashlib.sha256(SECRET.encode()).hexdigest()
            kept.execute(GrantAccess("b" * 12, "ci", digest, ("acquire:my-*",)))
            place = Place(url, Limits(**limits))
            stack.enter_context(place.thread)
            stack.callback(place.log.close)
            return place

        yield make


def acquire(key: str = "my-key") -> str:
    return f"/v1/locks/{key}/acquire"


def release(key: str = "my-key") -> str:
    return f"/v1/locks/{key}/release"


ASKED: list[tuple[str, Any, dict[str, str]]] = [
    (acquire(), MINE, {}),
    (acquire(), MINE, {}),  # the same again
    (acquire(), {**MINE, "attempt": "b-1", "owner": "you"}, {}),
    (acquire(), {**MINE, "attempt": "b-1", "owner": "you", "wait": True}, {}),
    (acquire(), {**MINE, "attempt": "a-2", "limit": 1}, {}),
    (acquire(), {**MINE, "mode": "shared", "attempt": "s-1", "owner": "s"}, {}),
    (acquire(), {**MINE, "ttl": -1}, {}),
    (acquire(), {**MINE, "ttl": 0.001}, {}),
    (acquire(), {**MINE, "now": 5}, {}),
    (acquire(), {**MINE, "unheard": 1}, {}),
    (acquire(), {**MINE, "take": 2, "mode": "shared"}, {}),
    (acquire(), b"{", {}),
    (acquire(), b"[]", {}),
    (acquire(), MINE, {"Content_Type": "text/plain"}),
    (f"{acquire()}?now=1", MINE, {}),
    (acquire("others"), MINE, {}),
    (acquire("my-%ff"), MINE, {}),
    (acquire(), MINE, {"Authorization": "Bearer nonsense"}),
    (acquire("my-2"), {**MINE, "attempt": "a-3"}, {}),
    (acquire("my-3"), {**MINE, "attempt": "a-4"}, {}),  # one too many
    (release(), {"attempt": "a-1"}, {}),
    (release(), {"attempt": "a-1", "token": 1}, {}),
    (release("others"), {"attempt": "a-1", "token": 1}, {}),
    (release(), {"attempt": "a-1", "token": "mine", "retire": False}, {}),
    (release(), {"attempt": "a-1", "token": "mine", "retire": False}, {}),
    (acquire(), {**MINE, "attempt": "b-1", "owner": "you", "wait": True}, {}),  # the claim
]


def ask_all(place: Place) -> list[Any]:
    found, token = [], 0
    for path, body, headers in ASKED:
        if isinstance(body, dict) and body.get("token") == "mine":
            body = {**body, "token": token}
        status, said = place.ask(path, body, **headers)
        token = token or said.get("token", 0)
        text = re.sub(r'("(?:token|at)": )[0-9.]+', r"\1…", json.dumps(said))
        text = re.sub(r'("(?:expires_in|held_for|for|age|since|waited)": )[0-9.e-]+', r"\1…", text)
        found.append((status, re.sub(r"[0-9.]+ s\b", "… s", text)))
    return found


@pytest.mark.parametrize("store", ["sqlite", "memory"])
def test_they_are_answered_counted_and_logged_as_with_a_task(make: Callable[..., Place], store: str) -> None:
    """There is one set of rules, rights, limits and error texts."""
    without, with_tasks = make(store, leases=2), make(store, leases=2)
    assert without.app._plain
    with_tasks.app._plain.clear()
    assert ask_all(without) == ask_all(with_tasks)
    assert without.has() == with_tasks.has() == {"asking": 0, "leases": 2, "tickets": 0}
    assert without.counted() == with_tasks.counted()
    logged = without.logged()
    assert logged == with_tasks.logged()
    assert len(logged) == len(ASKED)


def test_only_what_waits_for_something_else_takes_a_task(
    make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make()
    tasks: list[str] = []

    class Noticed(asyncio.Task):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **more: Any) -> None:
            if more["name"] == "holdfast-request":
                tasks.append(more["name"])
            super().__init__(*args, **more)

    monkeypatch.setattr(module.asyncio, "Task", Noticed)
    status, granted = place.ask(acquire(), MINE)
    assert status == 200
    assert place.ask(acquire(), {**MINE, "attempt": "b-1", "owner": "you"})[0] == 409
    assert place.ask(release(), {"attempt": "a-1", "token": granted["token"]})[0] == 200
    assert not tasks
    for body, headers in (
        ({**MINE, "attempt": "c-1", "timeout": 1}, {}),
        ({**MINE, "attempt": None} | {"owner": "me"}, {}),
        ({**MINE, "attempt": "c-1"}, {"Holdfast_History": "none"}),
    ):
        said = {name: value for name, value in body.items() if value is not None}
        assert place.ask(acquire(), said, **headers)[0] == 200
    assert tasks == ["holdfast-request"] * 3


def test_a_store_that_fails_is_told_and_what_was_asked_counts_no_more(
    make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make()

    def fail(*_: object) -> None:
        raise StoreUnavailable("db-1 is gone")

    monkeypatch.setattr(place.app._backend._lanes["notable"].store, "execute", fail)
    status, problem = place.ask(acquire(), MINE)
    assert (status, problem["error"]) == (503, "StoreUnavailable")
    assert "db-1" not in problem["detail"]
    assert place.has() == {"asking": 0, "leases": 0, "tickets": 0}
    monkeypatch.setattr("holdfast.server.lanes.MOST_PENDING", 0)
    status, problem = place.ask(acquire(), MINE)
    assert (status, problem["detail"]) == (503, "0 requests wait for the store already; try again later")
    assert place.has() == {"asking": 0, "leases": 0, "tickets": 0}
    assert [line[3] for line in place.logged()] == [503, 503]


def test_a_mistake_of_ours_is_one_answer_and_others_have_theirs(
    make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make()
    reply = LockChanges._reply

    def fail(self: LockChanges, call: Any, request: Any, answer: Any) -> Any:
        if request.key == "my-bad":
            raise ZeroDivisionError("a flaw of ours")
        return reply(self, call, request, answer)

    monkeypatch.setattr(LockChanges, "_reply", fail)
    with closing(http.client.HTTPConnection("127.0.0.1", place.port, timeout=40)) as connection:
        for key, status in (("my-bad", 500), ("my-good", 200)):
            connection.request("POST", acquire(key), json.dumps({**MINE, "attempt": key}), HEADERS)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
    assert place.has()["asking"] == 0
    assert [(line[3], line[6]) for line in place.logged()] == [(500, "ZeroDivisionError"), (200, None)]


def test_what_came_completely_is_done_though_its_caller_has_gone(make: Callable[..., Place]) -> None:
    """A release most of all: nobody comes back for that."""
    place = make()
    _, granted = place.ask(acquire(), MINE)
    body = json.dumps({"attempt": "a-1", "token": granted["token"]})
    lines = [f"POST {release()} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in HEADERS.items()]
    with closing(socket.create_connection(("127.0.0.1", place.port))) as left:
        left.sendall("\r\n".join([*lines, "", body]).encode())

    async def state() -> Any:
        return (await place.app._backend.ask(Inspect("my-key"))).state

    assert eventually(lambda: place.thread.run(state()) == "free")


def test_many_that_come_at_once_on_one_connection_are_answered_in_order(make: Callable[..., Place]) -> None:
    """However many: none is begun inside another."""
    place = make("memory")
    body = json.dumps(MINE)
    lines = [f"POST {acquire()} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in HEADERS.items()]
    one = "\r\n".join([*lines, "", body]).encode()
    many = 1500
    with closing(socket.create_connection(("127.0.0.1", place.port), timeout=40)) as peer:
        peer.settimeout(40)
        received, sent = b"", 0
        while received.count(b"HTTP/1.1 200 OK") < many:
            if sent < many:
                peer.sendall(one * 100)
                sent += 100
            received += peer.recv(1 << 20)
    assert received.count(b'"answer":"granted"') == many
