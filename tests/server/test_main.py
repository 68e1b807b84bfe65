"""A server's life inside a program: what it opens, counts and tidies, and that it lets go of it all."""

import asyncio
import io
import json
import shutil
import socket
import sqlite3
import threading
from contextlib import closing

import pytest

from holdfast import Holdfast, SettingsError, StoreError
from holdfast.core.requests import Acquire, Client, List, Swept, Withdraw
from holdfast.server import Limits, Server, ServerSettings
from holdfast.server.main import SWEPT_AT_ONCE
from holdfast.server.system.logs import ServerLog
from tests.server.test_metrics import parse


def settings(**more):
    return ServerSettings(**{"url": "memory://", "port": 0, **more})


@pytest.fixture
def stream():
    return io.StringIO()


@pytest.fixture
def log(stream):
    log = ServerLog("json", "debug", stream)
    yield log
    log.close()


def our_threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("holdfast")}


async def get(url, path, *headers, method="GET", body=b""):
    """Return the status and the body of an answer."""
    host, port = url.removeprefix("http://").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    head = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    if body:
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    writer.write("\r\n".join([*head, "", ""]).encode() + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    top, _, rest = answer.partition(b"\r\n\r\n")
    return int(top.split()[1]), rest


async def test_it_starts_serves_and_lets_go_of_everything(log):
    before = our_threads()
    async with Server(settings(), log=log) as server:
        assert (await get(server.url, "/readyz"))[0] == 200
        assert "127.0.0.1" in repr(server)
        url = server.url
    with pytest.raises(OSError):
        await get(url, "/readyz")
    assert server.url == ""
    assert our_threads() <= before
    assert len(asyncio.all_tasks()) == 1


async def test_it_can_be_started_again(log):
    server = Server(settings(), log=log)
    for _ in range(2):
        assert (await get(await server.start(), "/healthz"))[0] == 200
        await server.stop()


async def test_all_figures_of_a_used_server_can_be_read(log):
    async with Server(settings(), log=log) as server:
        path = "/v1/locks/nightly/acquire"
        assert (await get(server.url, path, method="POST", body=b'{"owner":"a"}'))[0] == 200
        assert (await get(server.url, path, method="POST", body=b'{"owner":"b"}'))[0] == 409
        assert (await get(server.url, path, method="POST", body=b'{"owner":"b","wait":true}'))[0] == 202
        assert (await get(server.url, "/nothing"))[0] == 404
        status, text = await get(server.url, "/metrics")
    assert status == 200
    families = parse(text.decode())
    found = {name: sum(samples.values()) for name, (_, samples) in families.items()}
    assert found["holdfast_grants_total"] == 1
    assert found["holdfast_queued_total"] == 1
    assert found["holdfast_refusals_total"] == 1
    assert found["holdfast_connections"] == 1
    routes = {dict(labels)["route"] for (_, labels) in families["holdfast_requests_total"][1]}
    assert routes == {"/v1/locks/{key}/acquire", "(none)"}
    assert b"nightly" not in text
    assert b'"a"' not in text


async def test_its_log_has_no_secrets(log, stream):
    body = json.dumps({"attempt": "very-secret-attempt", "owner": "somebody-known"}).encode()
    async with Server(settings(log_level="info"), log=ServerLog("json", "info", stream)) as server:
        header = f"Authorization: Bearer hf_0123456789ab_{'x' * 43}"
        await get(server.url, "/v1/locks/my-key/acquire", header, method="POST", body=body)
        await get(server.url, "/v1/locks?prefix=my-prefix")
        server.log.close()
    text = stream.getvalue()
    assert "/v1/locks/{key}/acquire" in text
    for secret in ("very-secret", "somebody-known", "xxxx", "my-key", "my-prefix"):
        assert secret not in text


async def test_a_port_in_use_leaves_nothing_open(log):
    before = our_threads()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match="is in use"):
            await Server(settings(port=port), log=log).start()
    assert our_threads() <= before
    assert len(asyncio.all_tasks()) == 1


async def test_a_store_that_cannot_be_opened_leaves_nothing_open(log, tmp_path):
    with pytest.raises(StoreError):
        await Server(settings(url=f"sqlite:///{tmp_path}"), log=log).start()
    assert len(asyncio.all_tasks()) == 1


async def test_it_does_not_listen_where_it_is_not_safe(log):
    with pytest.raises(SettingsError, match="--insecure-no-authentication"):
        await Server(settings(host="0.0.0.0"), log=log).start()


@pytest.mark.parametrize("host", ["::1", "localhost"])
async def test_it_listens_where_it_is_told_to(host, log):
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with Server(settings(host=host), log=log) as server:
        assert (await get(server.url, "/healthz"))[0] == 200


async def test_the_store_is_tidied_now_and_then(log, tmp_path):
    url = f"sqlite:///{tmp_path / 'locks.db'}"
    with Holdfast(url) as locks:
        locks._engine.store.execute(Acquire("old", "a", "o", 1.0, Client("", "h", 1), now=1000.0))
    server = Server(settings(url=url, sweep_every=0.01), log=log)
    swept = asyncio.get_running_loop().create_future()

    def observe(request, answer):
        if isinstance(answer, Swept) and not swept.done():
            swept.set_result(answer)

    server.metrics.observe_answer = observe
    async with server:
        assert (await swept).expired == 1


async def test_all_that_is_over_is_forgotten_however_few_keys_there_are(log, tmp_path):
    url = f"sqlite:///{tmp_path / 'locks.db'}"
    many = 2 * SWEPT_AT_ONCE + 1
    with Holdfast(url) as locks:
        for number in range(many):
            locks._engine.store.execute(Withdraw("k", f"a-{number}", now=1000.0))
    server = Server(settings(url=url, sweep_every=0.2), log=log)
    steps = []
    done = asyncio.get_running_loop().create_future()

    def observe(request, answer):
        if isinstance(answer, Swept):
            steps.append(answer.ended)
            if sum(steps) == many and not done.done():
                done.set_result(None)

    server.metrics.observe_answer = observe
    async with server:
        await done
    assert steps == [SWEPT_AT_ONCE, SWEPT_AT_ONCE, 1]


async def test_while_it_drains_it_is_not_ready_and_what_is_under_way_is_answered(log):
    """Half a request has come: it may finish, and is answered."""
    async with Server(settings(), log=log) as server:
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n")
        await get(server.url, "/healthz")  # by now the other connection was accepted
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.sleep(0)
        writer.write(b"Connection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        await stopping
    assert b"503" in answer.partition(b"\r\n")[0]
    assert b"going away" in answer


async def test_a_certificate_that_cannot_be_read_again_leaves_the_old_one(log, stream, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("missing: openssl, from the package openssl")
    from tests.server.test_http_store_tls import Authority

    cert, key = Authority(tmp_path / "ca").sign("127.0.0.1")
    async with Server(settings(tls_cert=str(cert), tls_key=str(key)), log=log) as server:
        assert server.url.startswith("https://")
        await server.reload()
        cert.write_text("broken")
        await server.reload()
    log.close()
    assert "read anew" in stream.getvalue()
    assert "not reloaded" in stream.getvalue()


async def test_limits_are_those_of_the_settings(log):
    async with Server(settings(limits=Limits(body=10)), log=log) as server:
        status, _ = await get(server.url, "/v1/renew", method="POST", body=b"x" * 11)
    assert status == 413


async def test_what_a_failing_store_says_is_for_the_log_alone(log, stream, tmp_path):
    file = tmp_path / "locks.db"
    async with Server(settings(url=f"sqlite:///{file}"), log=log) as server:
        with closing(sqlite3.connect(file, isolation_level=None)) as database:
            database.execute("DROP TABLE holdfast_locks")
        status, body = await get(server.url, "/v1/locks/k")
    assert status == 500
    assert b"log says more" in body
    assert str(tmp_path).encode() not in body
    assert b"table" not in body
    log.close()
    assert str(file) in stream.getvalue()


@pytest.mark.parametrize("what", ["release", "withdraw"])
async def test_who_gives_something_back_need_not_stay_for_the_answer(log, tmp_path, what):
    """Also when the line ends with the request: a client that has given up, or a process that ends."""
    async with Server(settings(url=f"sqlite:///{tmp_path}/locks.db"), log=log) as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        for n in range(20):
            body = json.dumps({"attempt": f"a-{n}", "owner": "o", "ttl": 600}).encode()
            _, told = await get(server.url, f"/v1/locks/k-{n}/acquire", method="POST", body=body)
            token = json.loads(told)["token"]
            given = {"attempt": f"a-{n}"} | ({"token": token} if what == "release" else {})
            body = json.dumps(given).encode()
            _, writer = await asyncio.open_connection(host, int(port))
            head = [
                f"POST /v1/locks/k-{n}/{what} HTTP/1.1",
                f"Host: {host}",
                "Content-Type: application/json",
            ]
            head += [f"Content-Length: {len(body)}", "", ""]
            writer.write("\r\n".join(head).encode() + body)
            writer.close()
        async with asyncio.timeout(20):
            while any(lock.state == "held" for lock in (await server._backend.ask(List())).locks):  # noqa: ASYNC110
                await asyncio.sleep(0)  # each look takes its turn in the store
