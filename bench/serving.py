"""Lock servers and an etcd to measure on: each a process of its own, as it is started in the field."""

from __future__ import annotations

import base64
import http.client
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.load import Talk, post
from bench.peers import Release, Take
from tests.servers.binaries import find
from tests.servers.lock_server import LockServer
from tests.servers.ports import HOST, free_port

KEEP = 600  # seconds that a lease of etcd lives: longer than we ask
NO_ETCD = "there is no etcd: install etcd-server"


def lock_server(store: str, place: Path, *flags: str, level: str = "warning") -> LockServer:
    """Return a lock server, not started. Nobody's share is limited: there is only one who asks."""
    log = place / f"server-{free_port()}.log"
    return LockServer(store, log, "--log-level", level, "--limit", "rate=0", *flags)


def access_token(store: str) -> str:
    """Make an access token that may take any lock; a server on that store asks for one from then on."""
    command = [sys.executable, "-m", "holdfast", "token", "create", "bench", "--allow", "acquire:*"]
    made = subprocess.run([*command, "--url", store], check=True, capture_output=True, text=True)
    return made.stdout.strip()


def metric(server: LockServer, name: str) -> float:
    """Return a figure of ``/metrics``."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(rf"^holdfast_{name} (\S+)$", text, re.MULTILINE)
    assert found, f"/metrics has no {name}"
    return float(found[1])


# etcd, through the gateway that speaks HTTP and JSON.


@contextmanager
def etcd(place: Path) -> Iterator[tuple[int, int] | None]:
    """Start a private etcd, durable as it comes; give its port and process, or None if there is none."""
    program = find("etcd")
    if program is None:
        yield None
        return
    port, among = free_port(), free_port()
    command = [
        *(program, "--data-dir", place / "etcd", "--log-level", "error"),
        *(
            "--listen-client-urls",
            f"http://{HOST}:{port}",
            "--advertise-client-urls",
            f"http://{HOST}:{port}",
        ),
        *(
            "--listen-peer-urls",
            f"http://{HOST}:{among}",
            "--initial-advertise-peer-urls",
            f"http://{HOST}:{among}",
        ),
        *("--initial-cluster", f"default=http://{HOST}:{among}"),
    ]
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            _until_ready(port)
            yield port, server.pid
        finally:
            server.terminate()


def _until_ready(port: int) -> None:
    for _ in range(200):
        try:
            Gateway(port).ask("/v3/maintenance/status", {})
            return
        except (OSError, http.client.HTTPException, KeyError):
            time.sleep(0.05)
    raise TimeoutError("etcd did not start")


class Gateway:
    """A connection to etcd's gateway."""

    def __init__(self, port: int) -> None:
        self._line = http.client.HTTPConnection(HOST, port)

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        self._line.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return json.load(self._line.getresponse())

    def lease(self) -> str:
        return self.ask("/v3/lease/grant", {"TTL": KEEP})["ID"]

    def close(self) -> None:
        self._line.close()


def etcd_pairs(port: int, index: int) -> Talk:
    """Take a lock of etcd and give it back. The lease is made before and kept, which is the best for it."""
    gateway = Gateway(port)
    lease = gateway.lease()
    gateway.close()
    name = _base64(f"key-{index}")
    while True:
        answer = yield post("/v3/lock/lock", f'{{"name":"{name}","lease":"{lease}"}}')
        key = answer[answer.index(b'"key":"') + 7 :].partition(b'"')[0].decode()
        yield post("/v3/lock/unlock", f'{{"key":"{key}"}}')


def etcd_lock(port: int) -> Take:
    """Open etcd's lock for one process; to take it is one request, which is answered when it is granted."""
    gateway = Gateway(port)
    lease = gateway.lease()

    def take(key: str) -> Release:
        held = gateway.ask("/v3/lock/lock", {"name": _base64(key), "lease": lease})["key"]
        return lambda: gateway.ask("/v3/lock/unlock", {"key": held})

    return take


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
