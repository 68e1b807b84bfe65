"""Faults that are more than a call of something tested elsewhere: do they bite, and leave nothing behind?"""

from __future__ import annotations

import json
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.clock import boot_time
from proof.faults.acknowledged import Acknowledged
from proof.faults.clocks import RIGHT, set_clock
from proof.faults.moments import held_by, updated_by
from proof.faults.namespaces import Cable, End, missing
from proof.faults.network import break_answers
from proof.faults.power import differences
from proof.traffic.client_clock import seen_wrong, tell_clock
from proof.traffic.resources import TABLES
from tests.faults.processes import eventually
from tests.servers import Proxy
from tests.servers.binaries import faketime
from tests.servers.ports import HOST

ANSWER = b"0123456789" * 20
PATIENCE = 20.0

# What a process in a network of its own does: ask again and again, each time anew, and say what came of it.
ASK = """
import socket, sys
for line in sys.stdin:
    try:
        with socket.create_connection(("127.0.0.1", int(line)), 0.5) as line:
            line.settimeout(0.5)
            line.sendall(b"?")
            print(len(line.recv(1000)), flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that gives the same answer to every byte."""
    listener = socket.create_server((HOST, 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                while connection.recv(1):
                    connection.sendall(ANSWER)
            except OSError:  # reset
                return

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


# A network of its own.


def namespaces() -> set[str]:
    return {path.name for path in Path("/run/netns").glob("*")}


@pytest.fixture
def cable(echo: int) -> Iterator[Cable]:
    if why := missing():
        pytest.skip(f"missing: {why}")
    with Cable(echo) as cable:
        mine = set(cable._names.values())
        assert mine <= namespaces()
        yield cable
    assert not mine & namespaces()


def test_who_lives_apart_reaches_the_same_port_by_a_cable_that_can_be_pulled(cable: Cable, echo: int) -> None:
    with cable.inside():
        process = subprocess.Popen(
            [sys.executable, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask() -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        print(echo, file=process.stdin, flush=True)
        return process.stdout.readline().strip()

    with process:
        assert ask() == str(len(ANSWER))
        ends: dict[End, str] = {"door": "TimeoutError", "client": "OSError"}  # silence; or its kernel knows
        for end, error in ends.items():
            with cable.pulled(end):
                assert ask() == error
                with socket.create_connection((HOST, echo), PATIENCE) as ours:  # nobody else is cut off
                    ours.sendall(b"?")
                    assert ours.recv(1000)
            assert eventually(lambda: ask() == str(len(ANSWER)))
        process.kill()


def test_threads_that_are_not_inside_stay_in_the_real_network(cable: Cable, echo: int) -> None:
    with cable.inside():
        thread = threading.Thread(target=lambda: None)
    with socket.create_connection((HOST, echo), PATIENCE):
        pass
    thread.start()
    thread.join()
    here = Path("/proc/thread-self/ns/net").readlink()
    assert here == Path("/proc/self/ns/net").readlink()


# Half an answer.


def test_half_an_answer_is_a_part_of_it_and_then_a_reset(echo: int) -> None:
    with Proxy(HOST, echo) as proxy, socket.create_connection((HOST, proxy.port), PATIENCE) as line:
        line.sendall(b"?")
        assert line.recv(1000) == ANSWER
        always = random.Random()
        always.random = lambda: 0.0  # type: ignore[method-assign]
        break_answers(proxy, always)
        line.sendall(b"?")
        got = line.recv(1000)
        assert 0 < len(got) < len(ANSWER)
        assert ANSWER.startswith(got)
        with pytest.raises(ConnectionResetError):
            line.recv(1000)


def test_nothing_is_broken_any_more_when_it_is_over(echo: int) -> None:
    with Proxy(HOST, echo) as proxy, socket.create_connection((HOST, proxy.port), PATIENCE) as line:
        line.sendall(b"?")
        assert line.recv(1000) == ANSWER
        break_answers(proxy, random.Random(1))
        break_answers(proxy, None)
        for _ in range(5):
            line.sendall(b"?")
            assert line.recv(1000) == ANSWER


# Clocks.


def test_a_clients_clock_can_be_set_while_it_runs_and_its_boot_time_goes_on(tmp_path: Path) -> None:
    library = faketime()
    if library is None:
        pytest.skip("missing: libfaketime, from the package libfaketime")
    clock = tmp_path / "clock"
    set_clock(clock, RIGHT)
    tell = (
        "import sys, time; from holdfast.clock import boot_time\n"
        "for _ in sys.stdin: print(time.time(), boot_time(), flush=True)"
    )
    environment = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": ":".join(sys.path),
    }
    with subprocess.Popen(
        [sys.executable, "-c", tell],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        readings = {"+3600 x1.0": 3600, "-86400 x1.0": -86400, "+0 x100000": None, RIGHT: 0}
        for reading, offset in readings.items():
            set_clock(clock, reading)
            print(file=process.stdin, flush=True)
            wall, boot = map(float, process.stdout.readline().split())
            assert abs(boot - time.clock_gettime(time.CLOCK_BOOTTIME)) < PATIENCE
            if offset is None:  # how far it has run ahead depends on when it was started
                assert wall - time.time() > PATIENCE
            else:
                assert abs(wall - time.time() - offset) < PATIENCE
        process.stdin.close()


def test_a_clock_that_a_client_has_seen_go_wrong_is_told_with_when(tmp_path: Path) -> None:
    clock = tmp_path / "http-async-4"
    assert seen_wrong(clock, since=0.0) is None
    tell_clock(clock)
    assert seen_wrong(clock, since=0.0) is None
    right = time.time() - boot_time()
    with clock.with_suffix(".seen").open("a") as file:
        file.writelines(f"{at} {right + ahead}\n" for at, ahead in ((5.0, 3600), (7.0, 0.001), (8.0, -0.4)))
    assert seen_wrong(clock, since=0.0) == 5.0
    assert seen_wrong(clock, since=6.0) == 8.0
    assert seen_wrong(clock, since=9.0) is None


# Power.


def write(folder: Path, *lines: object) -> None:
    with (folder / "sync-1.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_what_was_granted_and_is_not_on_the_copy_is_a_violation(tmp_path: Path) -> None:
    told = Acknowledged(tmp_path)
    path, copy = tmp_path / "locks.db", tmp_path / "copy.db"
    with Holdfast(f"sqlite:///{path}") as locks:
        for number, key in enumerate(["plain:1", "plain:1", "fenced:2"]):
            with locks.hold(key) as lease:
                write(tmp_path, ["ask", number, {"kind": "Acquire", "key": key}])
                said = {"outcome": "ok", "answer": "Granted", "token": lease.token}
                write(tmp_path, ["ask", number, said])
            told.look()
            if number == 0:
                early = dict(told.tokens)
                with sqlite3.connect(path) as database:
                    database.executescript(TABLES["sqlite"])
                    database.execute(f"VACUUM INTO '{copy}'")
    database.close()
    told.look()
    assert set(told.tokens) == {"plain:1", "fenced:2"}
    assert told.tokens["plain:1"] > early["plain:1"]
    assert differences(path, told) == []
    assert {violation.key for violation in differences(copy, told)} == {"plain:1", "fenced:2"}
    assert differences(copy, Acknowledged(tmp_path / "nobody")) == []


def test_an_acknowledged_update_that_is_not_on_the_copy_is_a_violation(tmp_path: Path) -> None:
    told = Acknowledged(tmp_path)
    asked = {"kind": "update", "key": "fenced:1", "value": "worker-7"}
    path = tmp_path / "locks.db"
    with Holdfast(f"sqlite:///{path}") as locks, locks.hold("warm"):
        pass
    with sqlite3.connect(path) as database:
        database.executescript(TABLES["sqlite"])
    database.close()
    write(tmp_path, ["call", 1, asked])
    told.look()
    assert differences(path, told) == []  # it was asked, and nobody was told that it was done
    write(tmp_path, ["call", 1, {"outcome": "ok"}])
    told.look()
    (violation,) = differences(path, told)
    assert violation.key == "fenced:1"
    assert "worker-7" in violation.text


def test_a_damaged_copy_is_a_violation(tmp_path: Path) -> None:
    path, copy = tmp_path / "locks.db", tmp_path / "copy.db"
    with Holdfast(f"sqlite:///{path}") as locks:
        for number in range(200):
            with locks.hold(f"plain:{number}"):
                pass
    with sqlite3.connect(path) as database:
        database.executescript(TABLES["sqlite"])
    database.close()
    shutil.copy(path, copy)
    size = copy.stat().st_size
    with copy.open("r+b") as file:  # all but the first page, which says what there is
        file.seek(4096)
        file.write(b"?" * (size - 4096))
    assert differences(path, Acknowledged(tmp_path)) == []
    (violation, *_) = differences(copy, Acknowledged(tmp_path))
    assert "the file" in violation.text


# Catching a client with a lease.


def test_a_lease_is_held_from_the_answer_until_its_release_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "sync-1.jsonl"
    assert held_by(path) == set()
    one = {"owner": "sync-1.0-1", "key": "plain:1"}
    write(tmp_path, ["call", 1, {"kind": "acquire", **one}])
    assert held_by(path) == set()
    write(tmp_path, ["call", 1, {"outcome": "ok", "token": 7}])
    assert held_by(path) == {"plain:1"}
    write(tmp_path, ["call", 2, {"kind": "try", "owner": "sync-1.1-1", "key": "plain:2"}])
    write(tmp_path, ["call", 2, {"outcome": "refused"}])
    assert held_by(path) == {"plain:1"}
    write(tmp_path, ["call", 3, {"kind": "release", **one}])
    assert held_by(path) == set()


def test_an_update_is_under_way_from_its_call_until_its_answer(tmp_path: Path) -> None:
    path = tmp_path / "sync-1.jsonl"
    assert updated_by(path) == set()
    write(tmp_path, ["ask", 4, {"kind": "Renew", "key": "bare:1"}])
    write(tmp_path, ["call", 4, {"kind": "update", "owner": "sync-1.0-1", "key": "bare:1"}])
    write(tmp_path, ["ask", 4, {"outcome": "ok"}])
    assert updated_by(path) == {"bare:1"}
    write(tmp_path, ["call", 4, {"outcome": "ok"}])
    assert updated_by(path) == set()


def test_a_turn_that_is_over_holds_nothing_any_more(tmp_path: Path) -> None:
    one = {"owner": "sync-1.0-1", "key": "plain:1"}
    write(tmp_path, ["call", 1, {"kind": "acquire", **one}])
    write(tmp_path, ["call", 1, {"outcome": "ok", "token": 7}])
    write(tmp_path, ["trust", 1, one])  # it walked away
    assert held_by(tmp_path / "sync-1.jsonl") == set()
