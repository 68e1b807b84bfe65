"""`holdfast serve`: how it starts, what it refuses, how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from holdfast import Holdfast
from holdfast.cli import serve as command
from holdfast.server.configuration import names
from tests.e2e.serving import ENOUGH, served
from tests.e2e.support import holdfast, output

ACQUIRE = "/v1/locks/nightly/acquire"


def sqlite(tmp_path):
    return f"sqlite:///{tmp_path / 'locks.db'}"


def refusal(*flags, **options):
    """Return the one line with which it does not start, and the exit code."""
    done = holdfast("serve", "--port", "0", *flags, **options)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line, done.returncode


# Starting.


def test_it_says_where_it_is_what_it_serves_and_who_may_ask(tmp_path):
    with served("--url", sqlite(tmp_path)) as server:
        first, dashboard, store, authentication, ending = server.greeting
        assert first.endswith(server.url)
        assert dashboard.split() == ["dashboard", f"{server.url}/"]
        assert store.split() == ["store", sqlite(tmp_path)]
        assert authentication.split()[:2] == ["authentication", "off:"]
        assert "Ctrl-C" in ending
        assert server.get("/healthz")[0] == 200


def test_its_locks_are_those_of_the_store(tmp_path):
    with served("--url", sqlite(tmp_path)) as server, Holdfast(sqlite(tmp_path)) as locks:
        status, _ = server.ask("POST", ACQUIRE, {"owner": "curl"})
        assert status == 200
        assert locks.inspect("nightly").holder.owner == "curl"


def test_for_machines_it_says_so_in_json(tmp_path):
    with served("--url", sqlite(tmp_path), "--log-format", "json") as server:
        line = json.loads(server.logged('"serving"'))
        assert line["url"].startswith("http://127.0.0.1:")
        assert line["authentication"] is False
        assert line["pid"] == server.process.pid
        server.url = line["url"]
        assert server.get("/v1/nothing")[0] == 404
        assert json.loads(server.logged('"(none)"'))["status"] == 404


def test_settings_come_from_flags_environment_and_file(tmp_path):
    file = tmp_path / "server.toml"
    file.write_text('history = "all"\nlog_level = "error"\n[limits]\nrate = 7\n')
    text = output_with(
        {"HOLDFAST_SERVER_LOG_LEVEL": "debug", "HOLDFAST_SERVER_DRAIN": "1"},
        *("serve", "--config", str(file), "--drain", "2", "--limit", "body=99", "--print-config"),
    )
    lines = {line.split()[0]: line.split("#")[-1].strip() for line in text.splitlines() if "=" in line}
    assert lines["history"] == lines["rate"] == str(file)
    assert lines["log_level"] == "HOLDFAST_SERVER_LOG_LEVEL"
    assert lines["drain"] == "--drain"
    assert lines["body"] == "--limit body"
    assert lines["port"] == "default"


def output_with(environment, *args):
    done = holdfast(*args, env={**os.environ, **environment})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_nothing_secret_is_printed():
    text = output("serve", "--url", "postgresql://ann:s3cret@db/app", "--print-config")
    assert "s3cret" not in text


def test_every_setting_has_a_flag():
    text = output("serve", "--help")
    plain = [name for name in names() if not name.startswith("limits.")]
    assert [name for name in plain if f"--{name.replace('_', '-')}" not in text] == []


# What it refuses.


def test_it_does_not_serve_other_machines_without_authentication(tmp_path):
    line, code = refusal("--url", sqlite(tmp_path), "--host", "0.0.0.0")
    assert code == 64
    assert "holdfast token create" in line
    assert "--insecure-no-authentication" in line


def test_it_does_if_told_so_in_so_many_words_and_warns(tmp_path):
    flags = ("--host", "0.0.0.0", "--insecure-no-authentication")
    with served("--url", sqlite(tmp_path), *flags) as server:
        server.logged("may take and break every lock")
        server.logged("in the clear")


def test_it_does_with_a_token_and_then_asks_for_it(tmp_path):
    token = output_of_token("create", "ops", "--allow", "admin:*", "--url", sqlite(tmp_path))
    with served("--url", sqlite(tmp_path), "--host", "0.0.0.0") as server:
        server.url = server.url.replace("0.0.0.0", "127.0.0.1")
        assert server.get("/v1/server")[0] == 401
        assert server.get("/v1/server", Authorization=f"Bearer {token}")[0] == 200


def output_of_token(*args):
    done = holdfast("token", *args)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_port_that_is_taken_is_one_clear_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line, code = refusal("--url", sqlite(tmp_path), "--port", port)
    assert code == 64
    assert f"port {port} of 127.0.0.1 is in use" in line


def test_a_store_that_does_not_answer_is_one_clear_line():
    pytest.importorskip("psycopg")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    line, code = refusal("--url", f"postgresql://127.0.0.1:{port}/app")
    assert code == 69
    assert str(port) in line


def test_tables_that_are_missing_are_one_clear_line(postgres_url):
    line, code = refusal("--url", postgres_url)
    assert code == 79
    assert "holdfast schema apply" in line


def test_a_setting_that_is_misspelt_is_one_clear_line(tmp_path):
    file = tmp_path / "server.toml"
    file.write_text("prot = 1")
    line, code = refusal("--config", str(file))
    assert (code, "nearest is 'port'" in line) == (64, True)
    line, code = refusal("--limit", "bodi=3")
    assert (code, "nearest is 'limits.body'" in line) == (64, True)
    line, code = refusal("--limit", "body")
    assert (code, "--limit is 'body'" in line) == (64, True)


def test_without_httptools_it_says_what_to_install(tmp_path):
    (tmp_path / "httptools.py").write_text("raise ImportError('not here')")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    line, code = refusal("--url", sqlite(tmp_path), env=env)
    assert (code, "pip install 'holdfast[server]'" in line) == (79, True)


def test_a_certificate_that_is_none_is_one_clear_line(tmp_path):
    for name in ("server.pem", "server.key"):
        (tmp_path / name).write_text("nothing")
    files = ("--tls-cert", str(tmp_path / "server.pem"), "--tls-key", str(tmp_path / "server.key"))
    line, code = refusal("--url", sqlite(tmp_path), *files)
    assert code == 64
    assert "server.pem" in line


# Ending.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(number, tmp_path):
    with served("--url", sqlite(tmp_path)) as server:
        assert server.end(number) == 0
        assert "ended" in server.errors[-1]


def stream(server, path, body=None):
    """Open an event stream; return the connection's file, and the socket."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=ENOUGH)
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: localhost\r\n"
    head += "Accept: text/event-stream\r\n"
    if data:
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    connection.sendall(f"{head}\r\n".encode() + data)
    return connection.makefile("rb"), connection


def read_until(lines, wanted):
    seen = b""
    for line in lines:
        seen += line
        if wanted in line:
            return
    raise AssertionError(seen)


def test_who_waits_and_who_watches_is_told_goodbye_and_keeps_the_place(tmp_path):
    with served("--url", sqlite(tmp_path)) as server:
        server.ask("POST", ACQUIRE, {"owner": "first", "ttl": 60})
        events, first = stream(server, "/v1/events?prefix=")
        read_until(events, b"id:")
        waiter, second = stream(server, ACQUIRE, {"attempt": "mine", "owner": "second", "wait": True})
        read_until(waiter, b"event: queued")
        server.process.send_signal(signal.SIGTERM)
        for lines, connection in ((events, first), (waiter, second)):
            read_until(lines, b"goodbye")
            assert b"draining" in lines.read()
            connection.close()
        assert server.wait() == 0
    with Holdfast(sqlite(tmp_path)) as locks:
        assert [waiter.owner for waiter in locks.inspect("nightly").waiters] == ["second"]


def test_a_long_poll_that_is_under_way_is_answered(tmp_path):
    with served("--url", sqlite(tmp_path), "--history", "all") as server:
        server.ask("POST", ACQUIRE, {"owner": "first", "ttl": 60})
        answers = []
        body = {"attempt": "mine", "owner": "second", "timeout": 60}
        asking = threading.Thread(target=lambda: answers.append(server.ask("POST", ACQUIRE, body)))
        asking.start()
        with Holdfast(sqlite(tmp_path)) as locks:
            seen = locks.watch("nightly", after=0, timeout=ENOUGH)
            assert "queued" in (event.kind for event in seen)
        assert server.end() == 0
        asking.join(ENOUGH)
        ((status, text),) = answers
        assert status == 503
        assert "same attempt" in json.loads(text)["detail"]


def test_a_second_signal_ends_it_at_once(tmp_path):
    with served("--url", sqlite(tmp_path), "--drain", "1000") as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            # Half a request is under way: it would be waited for.
            slow.sendall(
                b"POST /v1/renew HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
                b"Content-Type: application/json\r\n\r\n{"
            )
            server.get("/v1/server")  # by now the other one was accepted
            server.process.send_signal(signal.SIGTERM)
            server.logged("ending: ")
            assert server.end() == 0


def test_hang_up_reads_access_tokens_anew(tmp_path):
    with served("--url", sqlite(tmp_path)) as server:
        token = output_of_token("create", "ops", "--allow", "admin:*", "--url", sqlite(tmp_path))
        server.process.send_signal(signal.SIGHUP)
        server.logged("read anew")
        assert server.get("/v1/server")[0] == 401
        assert server.get("/v1/server", Authorization=f"Bearer {token}")[0] == 200


def test_it_tells_systemd_when_it_is_ready_and_when_it_ends(tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(ENOUGH)
        with served("--url", sqlite(tmp_path), env={"NOTIFY_SOCKET": path}) as server:
            assert manager.recv(100) == b"READY=1"
            server.process.send_signal(signal.SIGHUP)
            assert manager.recv(100).startswith(b"RELOADING=1")
            assert manager.recv(100) == b"READY=1"
            server.process.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"


def test_only_who_serves_loads_the_server():
    code = "import sys, holdfast.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"asyncio", "httptools", "uvloop"} & set(loaded.stdout.split()) == set()
    assert command.__name__ in loaded.stdout.split()
