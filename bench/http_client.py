"""One client of a lock server, beside `http.client` doing the same two requests."""

from __future__ import annotations

import http.client
import json
from itertools import cycle

from bench import bare, serving
from bench.measure import costs, folder
from bench.report import Line, microseconds, per_second
from bench.sqlite_pair import CLIENT, KEYS, Keys, async_loop, public_loop, store_loop
from holdfast import Holdfast
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from tests.servers.ports import HOST

TITLE = "Client of a lock server: one uncontended pair"
WITH_HOLD = (
    "`with locks.hold(key): pass` on a server that keeps its locks in memory, so that the way there is what"
    " takes time. Beside a bare loop of `http.client`: two POSTs with the same bodies, answers read as JSON."
)
BY_HAND = "An `Acquire` and a `Release` made by hand and given to the store."
ASYNC = "`async with locks.hold(key): pass`: each request is made by a thread."


def run(quick: bool) -> list[Line]:
    rounds, seconds = (9, 0.5) if quick else (25, 3.0)
    keys = cycle([f"key-{number}" for number in range(KEYS)]).__next__
    with folder() as place, serving.lock_server("memory://", place) as server:
        store = open_store(server.url, StoreOptions(CLIENT))
        store.open()
        alone = Bare(server.port)
        async_pairs, close = async_loop(server.url, keys)
        with Holdfast(server.url) as locks:
            loops = {
                "bare": alone.loop(keys),
                "store": store_loop(store, keys),
                "public": public_loop(locks, keys),
                "async": async_pairs,
            }
            seen = costs(loops, rounds=rounds, seconds=seconds)
        close()
        store.close()
        alone.close()
    theirs = seen["bare"]
    lines = []
    for layer, name, target, means in (
        ("public", "pair, sync API", 0.7, WITH_HOLD),
        ("store", "… the store alone", 0.7, BY_HAND),
        ("async", "… async API", None, ASYNC),
    ):
        ours = seen[layer]
        lines += [
            Line(
                name,
                per_second(ours.rate),
                f"http.client {per_second(theirs.rate)}",
                ours.rate / theirs.rate,
                target,
                means=means,
                label=f"client of a server: {name.removeprefix('… ')}",
            ),
            Line(
                f"{name}: processor time",
                microseconds(ours.cpu),
                f"http.client {microseconds(theirs.cpu)}",
                theirs.cpu / ours.cpu,
                means="What a pair costs the client, which other work on the machine disturbs less.",
            ),
        ]
    return lines


class Bare:
    """Two POSTs on a connection of `http.client`."""

    def __init__(self, port: int) -> None:
        self._line = http.client.HTTPConnection(HOST, port)
        self._line.connect()

    def loop(self, keys: Keys):
        def pairs(times: int) -> None:
            for _ in range(times):
                self.pair(keys())

        return pairs

    def pair(self, key: str) -> None:
        attempt = bare.new_attempt()
        granted = self._ask(
            f"/v1/locks/{key}/acquire",
            {
                "attempt": attempt,
                "owner": bare.OWNER,
                "ttl": bare.TTL,
                "wait": True,
                "client": bare.WHO | {"instance": ""},
                "limit": 64,
                "patience": 15.0,
                "claim": 5.0,
            },
        )
        released = self._ask(
            f"/v1/locks/{key}/release", {"attempt": attempt, "token": granted["token"], "retire": False}
        )
        assert released["answer"] == "released"

    def _ask(self, path: str, body: dict[str, object]) -> dict[str, object]:
        self._line.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = self._line.getresponse()
        assert answer.status == 200
        return json.loads(answer.read())

    def close(self) -> None:
        self._line.close()
