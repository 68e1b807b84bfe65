"""`holdfast doctor`: what works, what does not and what to do, and nothing left behind."""

import json
import os
import re
import shutil
import socket
import sqlite3
import threading
from contextlib import closing

import pytest

from holdfast import Holdfast
from tests.e2e.serving import served
from tests.e2e.support import holdfast
from tests.server.test_http_store_tls import Authority

STORE = ["connect", "schema", "take and release", "clock", "signals", "round trip"]
SERVER = ["tls", "ready", "server", "rights"]


def doctor(*args, **env):
    done = holdfast("doctor", "--json", *args, env={**os.environ, **env})
    assert done.stderr == ""
    return done.returncode, {(each := json.loads(line))["name"]: each for line in done.stdout.splitlines()}


def bad(findings):
    return [name for name, finding in findings.items() if finding["good"] is False]


def rows(path):
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        counts = {name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
    return {name: count for name, count in counts.items() if name not in ("holdfast_meta", "holdfast_feed")}


@pytest.fixture
def used(url, locks):
    """A file that clients have used."""
    with locks.hold("nightly"):
        pass
    return url


def test_a_file_is_well_and_nothing_is_left_in_it(used, tmp_path):
    before = rows(tmp_path / "locks.db")
    code, findings = doctor(used)
    assert (code, bad(findings)) == (0, [])
    assert list(findings) == STORE
    assert rows(tmp_path / "locks.db") == before
    assert findings["signals"]["milliseconds"] > 0


@pytest.mark.parametrize("database", ["postgres_locks", "mariadb_locks"])
def test_a_database_is_well_and_nothing_is_left_in_it(database, request):
    url = request.getfixturevalue(database)
    code, findings = doctor(url)
    assert (code, bad(findings)) == (0, [])
    assert list(findings) == [*STORE[:2], "session", *STORE[2:]]
    with Holdfast(url) as locks:
        assert list(locks.list()) == []


def test_a_server_is_well_and_nothing_is_left_in_its_store(used, tmp_path):
    before = rows(tmp_path / "locks.db")
    with served("--url", used) as server:
        code, findings = doctor(server.url)
    assert (code, bad(findings)) == (0, [])
    assert list(findings) == SERVER + [name for name in STORE if name != "schema"]
    assert rows(tmp_path / "locks.db") == before


def test_it_reads_like_a_list_to_be_ticked_off(used):
    done = holdfast("doctor", used, env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    first, *lines, last = done.stdout.splitlines()
    assert (first, last) == (used, "everything works")
    assert [line[:2] for line in lines] == [" ✓"] * len(STORE)
    plain = holdfast("doctor", used, env={**os.environ, "PYTHONIOENCODING": "ascii"}).stdout
    assert plain.isascii()
    assert plain.count(" ok ") == len(STORE)


def test_a_file_that_is_not_there_is_not_made(url, tmp_path):
    done = holdfast("doctor")
    assert done.returncode == 79
    assert "does not exist" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_tables_that_are_missing_are_told_with_what_to_do(postgres_url):
    code, findings = doctor(postgres_url)
    assert (code, bad(findings)) == (1, ["connect"])
    assert "holdfast schema apply" in findings["connect"]["text"]


@pytest.mark.parametrize("scheme", ["http", "postgresql"])
def test_nobody_there_is_told_with_what_to_do(scheme):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    code, findings = doctor(f"{scheme}://127.0.0.1:{port}/app")
    assert code == 1
    (found,) = (finding for finding in findings.values() if finding["good"] is False)
    assert str(port) in found["text"]
    assert "does it run" in found["advice"]


def test_who_has_no_token_learns_how_to_get_one(used):
    create("ops", "admin:*", used)
    with served("--url", used) as server:
        code, findings = doctor(server.url)
    assert (code, bad(findings)) == (1, ["server"])
    assert "access token" in findings["server"]["text"]


def create(name, right, url):
    done = holdfast("token", "create", name, "--allow", right, "--url", url)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_who_may_little_is_told_what_and_probes_only_there(used):
    token = create("ci", "acquire:build:*", used)
    with served("--url", used, "--log-level", "debug") as server:
        code, findings = doctor(server.url, HOLDFAST_ACCESS_TOKEN=token)
        server.logged("/release")
        log = "".join(server.errors)
    assert (code, bad(findings)) == (0, [])
    assert findings["rights"]["text"] == "you are ci, and may acquire:build:*"
    assert {key[:6] for key in re.findall(r"key=(\S+)", log)} == {"build:"}


def test_who_may_only_look_is_not_unwell(used):
    token = create("eye", "observe:*", used)
    with served("--url", used) as server:
        code, findings = doctor(server.url, HOLDFAST_ACCESS_TOKEN=token)
    assert (code, findings["take and release"]["good"]) == (0, None)


def test_a_prefix_can_be_chosen(used):
    token = create("ci", "acquire:build:*", used)
    with served("--url", used) as server:
        code, findings = doctor(server.url, "--prefix", "nightly:", HOLDFAST_ACCESS_TOKEN=token)
    assert (code, bad(findings)[0]) == (1, "take and release")
    assert "no right to acquire" in findings["take and release"]["text"]


def test_a_server_that_is_none_is_recognised():
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer():
            connection, _ = other.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        thread = threading.Thread(target=answer)
        thread.start()
        code, findings = doctor(f"http://127.0.0.1:{other.getsockname()[1]}")
        thread.join()
    assert code == 1
    assert "is no lock server" in findings["reach the server"]["text"]


def test_a_certificate_is_looked_at(used, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("missing: openssl, from the package openssl")
    authority = Authority(tmp_path / "authority")
    cert, key = authority.sign("127.0.0.1")
    with served("--url", used, "--tls-cert", str(cert), "--tls-key", str(key)) as server:
        code, findings = doctor(f"{server.url}?ca={authority.cert}")
        assert (code, bad(findings)) == (0, [])
        assert re.search(r"TLSv1.3; .* valid for \d days?", findings["tls"]["text"])
        assert findings["tls"]["advice"] == "renew it soon"
        code, findings = doctor(server.url)
        assert (code, bad(findings)) == (1, ["reach the server"])
        assert "ca=" in findings["reach the server"]["text"]


def test_a_url_is_given_once():
    assert holdfast("doctor", "sqlite:///a.db", "--url", "sqlite:///b.db").returncode == 64


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_is_not_there_is_a_finding(scheme):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    code, findings = doctor(f"{scheme}://127.0.0.1:{port}")
    assert (code, bad(findings)) == (1, ["reach the server"])
    assert "cannot connect" in findings["reach the server"]["text"]


def test_a_server_that_hangs_up_in_the_handshake_is_a_finding():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up():
            listener.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        code, findings = doctor(f"https://127.0.0.1:{listener.getsockname()[1]}")
    assert (code, bad(findings)) == (1, ["reach the server"])
