"""Stores that come up later than who uses them: a server that starts, tables and grants that are made."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import AsyncHoldfast, Holdfast, errors
from tests.servers.lock_server import LockServer
from tests.servers.mariadb import MariaDBServer
from tests.servers.ports import HOST
from tests.servers.postgres import PostgresServer

HOLDFAST = [sys.executable, "-m", "holdfast"]
LONG = 120.0


def later(function: Any, after: float = 0.7) -> threading.Timer:
    timer = threading.Timer(after, function)
    timer.start()
    return timer


def apply(url: str, *options: str) -> None:
    subprocess.run([*HOLDFAST, "schema", "apply", *options, url], check=True, capture_output=True)


@pytest.mark.parametrize("kind", [PostgresServer, MariaDBServer])
def test_a_server_that_starts_later_is_waited_for(kind: Any) -> None:
    with kind() as server:
        url = server.create_database()
        apply(url)
        server.stop()
        with pytest.raises(errors.StoreUnavailable):
            Holdfast(url)
        starting = later(server.start)
        with Holdfast(url, wait_for_store=LONG) as locks, locks.hold("nightly", timeout=0):
            pass
        starting.join()


@pytest.mark.parametrize("kind", [PostgresServer, MariaDBServer])
def test_a_migration_that_runs_later_is_waited_for(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The database, the tables and the grants are made one after the other, while a client waits."""
    with kind() as server:
        server.execute("CREATE ROLE app LOGIN" if kind is PostgresServer else "CREATE USER app@'%'")
        owner, theirs = server.url("late", user="holdfast"), server.url("late", user="app")
        if kind is MariaDBServer:
            owner = server.url("late", user="root")

        def migrate() -> None:
            server.execute("CREATE DATABASE late" + (" OWNER holdfast" if kind is PostgresServer else ""))
            time.sleep(0.5)
            apply(owner)
            time.sleep(0.5)
            apply(owner, "--grant", "app")

        migrating = later(migrate)
        with Holdfast(theirs, wait_for_store=LONG) as locks, locks.hold("nightly", timeout=0):
            pass
        migrating.join()
    assert "the store is not ready, trying for another" in caplog.text


def test_a_task_can_wait_for_a_server_and_do_something_else(postgres_url: str) -> None:
    async def main() -> None:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0.01)

        beating = asyncio.create_task(beat())
        applying = later(lambda: apply(postgres_url))
        async with AsyncHoldfast(postgres_url, wait_for_store=LONG) as locks, locks.hold("nightly"):
            pass
        applying.join()
        beating.cancel()
        assert beats > 1

    asyncio.run(main())


def test_a_lock_server_that_starts_later_is_waited_for(tmp_path: Path) -> None:
    with LockServer(f"sqlite:///{tmp_path}/locks.db", tmp_path / "log") as server:
        url = server.url
        server.stop()
        starting = later(server.start)
        with Holdfast(url, wait_for_store=LONG) as locks, locks.hold("nightly", timeout=0):
            pass
        starting.join()


def test_a_wrong_password_is_not_waited_for(mariadb_server: MariaDBServer, mariadb_url: str) -> None:
    mariadb_server.execute("CREATE OR REPLACE USER locked_out@'%' IDENTIFIED BY 'secret'")
    with pytest.raises(errors.StoreMisconfigured, match="refuses the user or the password"):
        Holdfast(mariadb_url.replace("holdfast@", "locked_out:wrong@"), wait_for_store=LONG)


COMMANDS = (
    ["run", "nightly", "--", "echo", "ran"],
    ["ls"],
    ["show", "never used"],
    ["watch", "*", "--timeout", "0"],
    ["resize", "gpu", "3"],
    ["break", "nobody has it", "--reason", "x", "--yes"],
    ["work"],
    ["work", "offer", "job:1"],
    ["instances"],
    ["sweep"],
    ["token", "list"],
    ["token", "create", "ci", "--allow", "observe:*"],
    ["doctor"],
)


def test_every_command_waits_for_the_tables(postgres_url: str) -> None:
    waiting = [
        subprocess.Popen(
            [*HOLDFAST, "--url", postgres_url, "--wait-for-store", "120", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in COMMANDS
    ]
    for process in waiting:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert re.search(r"the store is not ready, trying for another \d+ s: the database has no", said)
    apply(postgres_url)
    codes = {command[0]: process.wait(60) for command, process in zip(COMMANDS, waiting, strict=True)}
    for process in waiting:
        process.communicate()
    assert {name: code for name, code in codes.items() if code} == {"show": 1, "break": 77}


def test_a_command_waits_no_longer_than_it_is_told() -> None:
    done = subprocess.run(
        [*HOLDFAST, "schema", "status", f"postgresql://{HOST}:1/app", "--wait-for-store", "300ms"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (69, "")
    first, *_, last = done.stderr.splitlines()
    assert first.startswith(
        "holdfast: the store is not ready, trying for another 0 s: PostgreSQL: cannot connect"
    )
    assert last.startswith("holdfast: PostgreSQL: cannot connect")


@pytest.mark.parametrize("ends", [False, True])
def test_a_lock_server_waits_for_its_tables(postgres_url: str, ends: bool) -> None:
    serving = subprocess.Popen(
        [*HOLDFAST, "serve", "--port", "0", "--url", postgres_url, "--wait-for-store", "120"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert serving.stdout is not None
        assert serving.stderr is not None
        assert "the store is not ready" in serving.stderr.readline()
        if ends:
            serving.terminate()
            assert serving.wait(30) == 143
            return
        apply(postgres_url)
        assert "serves http://" in serving.stdout.readline()
        serving.terminate()
        assert serving.wait(30) == 0
    finally:
        serving.kill()
        serving.communicate()
