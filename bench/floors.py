"""Floors of a hand-over on a server: what no queue can be faster than, in the same contest.

*C floor*: the smallest correct FIFO hand-over that is on the disk before the next is in, written in C on the
smallest tables (`bench/floor`). *Raw*: a lock of the server's own, which keeps nothing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from bench import peers, servers
from bench.contest import Entry
from bench.processes import Ready
from bench.servers import POSTGRES, Kind

SOURCES = Path(__file__).parent / "floor"
BUILT = SOURCES.parent.parent / "build" / "bench"


class CFloor:
    """The contest in C on a database of its own."""

    def __init__(self, kind: Kind, url: str) -> None:
        name = kind.program.removesuffix("d")
        self._program = _build(name)
        parts = urlsplit(url)
        self._where = (
            [url]
            if kind is POSTGRES
            else [str(parts.hostname), str(parts.port), str(parts.username), parts.path[1:]]
        )
        connection = servers.postgres(url) if kind is POSTGRES else servers.mariadb(url)
        for statement in (SOURCES / f"{name}.sql").read_text().split("\n\n"):
            connection.cursor().execute(statement)
        connection.close()

    def worker(self, index: int, ready: Ready) -> list[Entry]:
        """Let one program take part, and read what it has seen."""
        pipe = subprocess.PIPE
        with subprocess.Popen([self._program, *self._where], stdin=pipe, stdout=pipe, text=True) as program:
            assert program.stdin is not None
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n", f"{self._program} did not start"
            program.stdin.write(f"{ready()}\n")
            program.stdin.close()
            entries: list[Entry] = [tuple(map(int, line.split())) for line in program.stdout]  # type: ignore[misc]
        assert program.returncode == 0, f"{self._program} failed"
        return entries


@cache
def _build(name: str) -> Path:
    """Compile the floor of a database, once in a run."""
    BUILT.mkdir(parents=True, exist_ok=True)
    program = BUILT / f"floor-{name}"
    sources = [SOURCES / "worker.c", SOURCES / f"{name}.c"]
    command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, *sources, *_flags(name)]
    subprocess.run(list(map(str, command)), check=True)
    return program


def _flags(name: str) -> list[str]:
    """Ask the libraries how to be compiled with and linked."""

    def say(program: str, *options: str) -> list[str]:
        return subprocess.run([program, *options], check=True, capture_output=True, text=True).stdout.split()

    if name == "mariadb":
        return say("mariadb_config", "--cflags", "--libs")
    headers, libraries = say("pg_config", "--includedir", "--libdir")
    return [f"-I{headers}", f"-L{libraries}", "-lpq"]


def advisory_lock(url: str) -> peers.Take:
    connection = servers.postgres(url)
    connection.prepare_threshold = 0  # prepare at once
    cursor = connection.cursor()

    def take(key: str) -> peers.Release:
        cursor.execute("SELECT pg_advisory_lock(hashtext(%s))", (key,))
        return lambda: cursor.execute("SELECT pg_advisory_unlock(hashtext(%s))", (key,))

    return take


def get_lock(url: str) -> peers.Take:
    cursor = servers.mariadb(url).cursor()

    def take(key: str) -> peers.Release:
        cursor.execute("SELECT GET_LOCK(%s, 60)", (key,))
        assert cursor.fetchall() == ((1,),)
        return lambda: cursor.execute("SELECT RELEASE_LOCK(%s)", (key,))

    return take


RAW: dict[str, Callable[[str], peers.Take]] = {"PostgreSQL": advisory_lock, "MariaDB": get_lock}
