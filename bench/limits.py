"""What the two statements of a pair can do from C: pgbench, and mariadb-slap. They come with the servers.

The statements are the stores' own. `:now` is empty, as it is in production.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench import bare
from bench.bare_servers import TTL, BareMariaDB, acquiring, mariadb_statements, releasing
from tests.servers.binaries import need

KEYS = 200
ASYNCHRONOUS = re.compile(r"\s+AND set_config\('synchronous_commit', 'off', true\) IS NOT NULL")

_PGBENCH = """\
\\set key 1000 * :client_id + random(1, {keys})
\\set attempt random(1, 9000000000000000000)
{acquire} \\gset
{release} \\gset released_
"""


class PgBench:
    """`pgbench -M prepared`. A pair that is not granted, or not released, ends it with an error."""

    def __init__(self, url: str, folder: Path, *, durable: bool) -> None:
        from holdfast.stores.postgres.schema import SQL

        self._url = urlsplit(url)
        self._program = need("postgres").resolve().with_name("pgbench")  # not Debian's wrapper in the PATH
        self._script = folder / f"pair-{'durable' if durable else 'asynchronous'}.sql"
        release = ASYNCHRONOUS.sub("", SQL.release) if durable else SQL.release
        acquire, release = (text.replace(":now", "NULL::bigint") for text in (SQL.acquire, release))
        self._script.write_text(_PGBENCH.format(keys=KEYS, acquire=acquire, release=release))
        self.loop(KEYS)

    def loop(self, times: int) -> float:
        """Do so many pairs with one client, and return how long they took, without connecting."""
        return times / self._run("-t", times)

    def rate(self, clients: int, seconds: float) -> float:
        """Return the pairs a second of so many clients together."""
        return self._run("-c", clients, "-j", 2, "-T", max(round(seconds), 1))

    def _run(self, *options: Any) -> float:
        url = self._url
        known = {"owner": bare.OWNER, "ttl": TTL, **bare.WHO}
        where = ["-h", url.hostname, "-p", url.port, "-U", url.username]
        given = [f"-D{name}={value}" for name, value in known.items()]
        command = [self._program, "-n", "-M", "prepared", "-f", self._script, *where, *given, *options]
        done = subprocess.run([*map(str, command), url.path[1:]], capture_output=True, text=True, check=False)
        match = re.search(r"tps = ([\d.]+) \(without initial", done.stdout)
        if done.returncode or not match:
            raise RuntimeError(f"pgbench failed:\n{done.stdout}{done.stderr}")
        return float(match[1])


class Slap:
    """`mariadb-slap`, which sends the statements of a file one after the other.

    It knows no variables, so each pair is written out; the token is the connection's `LAST_INSERT_ID()`.
    Several clients are several programs, each with keys of its own: all clients of one send the same.
    """

    def __init__(self, url: str, folder: Path) -> None:
        sql = mariadb_statements()
        self._url = urlsplit(url)
        self._folder = folder
        self._acquire, self._release = sql["acquire"], sql["release"]
        self._check = BareMariaDB(url)
        self._known: set[int] = set()

    def loop(self, times: int) -> float:
        """Do so many pairs with one client, and return how long they took, with connecting: a millisecond."""
        return self._finish(self._start(0, times))

    def rate(self, clients: int, seconds: float) -> float:
        """Return the pairs a second of so many clients together, who run for about so long."""
        times = 100
        for wanted in (0.2, seconds):  # a first guess, and then for good
            running = [self._start(client, times) for client in range(clients)]
            took = [self._finish(each) for each in running]
            times = max(int(times * wanted / max(took)), 50)
            done = running[0][2]
        return sum(done / each for each in took)

    def close(self) -> None:
        self._check.close()

    def _start(self, client: int, times: int) -> tuple[Any, dict[str, str], int]:
        keys = [f"slap-{client}-{number}" for number in range(KEYS)]
        if client not in self._known:
            self._check.fill(keys)
            self._known.add(client)
        last: dict[str, str] = {}
        texts = []
        for number in range(times):
            key, attempt = keys[number % KEYS], bare.new_attempt()
            last[key] = attempt
            texts.append(_filled(self._acquire, acquiring(key, attempt)))
            texts.append(_filled(self._release, releasing(key, attempt, 0) | {"token": None}))
        file = self._folder / f"slap-{client}.sql"
        file.write_text(";\n".join(texts))
        url = self._url
        options = {
            "host": url.hostname,
            "port": url.port,
            "user": url.username,
            "create-schema": url.path[1:],
            "query": file,
            "delimiter": ";",
            "init-command": "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        }
        command = [need("mariadb-slap"), "--no-defaults", "--no-drop", "--skip-ssl", "--protocol=tcp"]
        command += [f"--{name}={value}" for name, value in options.items()]
        pipe = subprocess.PIPE
        return subprocess.Popen(list(map(str, command)), stdout=pipe, stderr=pipe, text=True), last, times

    def _finish(self, started: tuple[Any, dict[str, str], int]) -> float:
        running, last, _ = started
        said, complaint = running.communicate()
        match = re.search(r"Average number of seconds to run all queries: ([\d.]+)", said)
        if running.returncode or not match:
            raise RuntimeError(f"mariadb-slap failed:\n{said}{complaint}")
        # It does not look at the answers. What the last pair of each key has left tells that they were good.
        cursor = self._check._cursor
        cursor.execute("SELECT lock_key, last_attempt FROM holdfast_locks WHERE owner IS NULL")
        found = {key.decode(): (attempt or b"").decode() for key, attempt in cursor.fetchall()}
        assert all(found.get(key) == attempt for key, attempt in last.items()), "pairs were refused"
        return max(float(match[1]), 0.001)


def _filled(text: str, parameters: dict[str, Any]) -> str:
    """Write parameters into a statement; the token is what the connection was granted last."""

    def literal(match: re.Match[str]) -> str:
        value = parameters[match[1]]
        if match[1] == "token":
            return "LAST_INSERT_ID()"
        return "NULL" if value is None else str(value) if isinstance(value, int) else f"'{value}'"

    return re.sub(r":([a-z_]+)", literal, text)
