"""A private PostgreSQL server, with standbys.

Two roles, both without password: ``postgres`` is the superuser; ``holdfast`` owns the databases and may do no
more than an application may, so that nothing passes a test because it was allowed too much.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from tests.servers.binaries import need
from tests.servers.ports import HOST
from tests.servers.scratch import scratch
from tests.servers.server import PATIENCE, Server, ServerFailed

ADMIN, OWNER = "postgres", "holdfast"

_QUICK: dict[str, str | int] = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_wal_size": "128MB",
}


class PostgresServer(Server):
    """A PostgreSQL server. Unless it is *durable*, a kill may take the newest commits with it."""

    program = "postgres"
    accounts = ("postgres",)
    stopping = signal.SIGINT  # "fast": ends the sessions

    def __init__(
        self,
        *,
        durable: bool = False,
        settings: Mapping[str, str | int] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.durable = durable
        super().__init__(settings, environment)
        self.data = self.directory / "data"

    def defaults(self) -> dict[str, str | int]:
        return {
            "listen_addresses": HOST,
            "max_connections": 300,
            "shared_buffers": "32MB",
            # Files of the data directory. What lies in /dev/shm would stay there after a kill.
            "dynamic_shared_memory_type": "mmap",
            "wal_retrieve_retry_interval": "200ms",
            **({} if self.durable else _QUICK),
        }

    @property
    def place(self) -> Path:
        return self.data

    @property
    def name(self) -> str:
        """Tell what a standby is called in ``synchronous_standby_names``."""
        return f"standby_{self.directory.name.replace('-', '_')}"

    def prepare(self) -> None:
        if not self.data.exists():
            scratch().copy("initdb", self.account, self._initialise, self.data)
        self._write_settings()
        for lock in self.directory.glob(".s.PGSQL.*"):  # of a killed one; its process id may be taken by now
            lock.unlink()

    def command(self) -> list[str | Path]:
        return [need("postgres"), "-D", self.data]

    def is_ready(self) -> bool:
        """Look at the last line of the postmaster's file, as pg_ctl does."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[7].strip() == "ready"

    def url(self, database: str = "postgres", *, user: str = OWNER, **options: str | int) -> str:
        """Tell the URL of *database*; *options* are those of libpq, as ``connect_timeout=3``."""
        query = f"?{urlencode(options)}" if options else ""
        return f"postgresql://{user}@{HOST}:{self.port}/{database}{query}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run *statement* as superuser in a transaction of its own, and give the rows."""
        import psycopg  # not above: most tests need no driver, and all load the fixtures

        with psycopg.connect(self.url(database, user=ADMIN), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def create_database(self, icu_locale: str | None = None) -> str:
        """Make an empty database of ``holdfast`` and give its URL.

        It sorts by bytes; with *icu_locale* (``en-US``) as people do, as most servers in the field.
        """
        name = f"test_{uuid.uuid4().hex[:12]}"
        locale = f"TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE '{icu_locale}'" if icu_locale else ""
        self.execute(f"CREATE DATABASE {name} OWNER {OWNER} {locale}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop the database of *url*, whoever is still connected."""
        self.execute(f"DROP DATABASE IF EXISTS {urlsplit(url).path[1:]} WITH (FORCE)")

    def configure(self, **settings: str | int) -> None:
        """Change settings and load them. Those that need it take effect with the next `restart`."""
        self.settings |= settings
        self._write_settings()
        loaded = self.execute("SELECT pg_conf_load_time()")
        self._signal_reload()
        self._wait_for(f"SELECT pg_conf_load_time() > '{loaded[0][0].isoformat()}'")
        if "synchronous_standby_names" in settings:
            # Commits wait when the checkpointer has loaded the settings, too. It has when it makes the second
            # of two checkpoints: the first may have begun before.
            for _ in range(2):
                self.execute("CHECKPOINT")

    def standby(self, *, synchronous: bool = False) -> PostgresServer:
        """Start a streaming replica, and return when it streams.

        With *synchronous*, commits of this server wait for it from now on, as far as the session's
        ``synchronous_commit`` says (it is set to ``on`` here; try ``remote_apply``).
        """
        standby = type(self)(durable=self.durable, settings=self._settings_of_a_standby())
        standby.settings["cluster_name"] = standby.name
        source = f"host={HOST} port={self.port} user={ADMIN}"
        options = ["--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        standby.call([need("pg_basebackup"), "-D", standby.data, "-d", source, *options], standby.directory)
        standby.settings["primary_conninfo"] = f"{source} application_name={standby.name}"
        standby.write(standby.data / "standby.signal", "")
        standby.start()
        mode = "streaming' AND sync_state = 'sync" if synchronous else "streaming"
        if synchronous:
            self.configure(synchronous_standby_names=standby.name, synchronous_commit="on")
        self._wait_for(
            "SELECT EXISTS (SELECT FROM pg_stat_replication"
            f" WHERE application_name = '{standby.name}' AND state = '{mode}')"
        )
        return standby

    def promote(self) -> Self:
        """Make this standby a primary, and return when it takes writes."""
        if self.execute(f"SELECT pg_promote(true, {PATIENCE:.0f})") != [(True,)]:
            raise ServerFailed(f"{self} was not promoted:\n{self.tail()}")
        return self

    def _settings_of_a_standby(self) -> dict[str, str | int]:
        """Leave out what would make a promoted standby wait for itself."""
        return {name: value for name, value in self.settings.items() if name != "synchronous_standby_names"}

    def _initialise(self, directory: Path) -> None:
        options = ["--no-sync", "--auth=trust", f"--username={ADMIN}", "--encoding=UTF8", "--locale=C.UTF-8"]
        self.call([need("initdb"), "-D", directory, *options], directory)
        owner = f"CREATE ROLE {OWNER} LOGIN CREATEDB;\nALTER DATABASE postgres OWNER TO {OWNER};\n"
        self.call([need("postgres"), "--single", "-F", "-D", directory, "postgres"], directory, input=owner)

    def _write_settings(self) -> None:
        settings = {**self.settings, "port": self.port, "unix_socket_directories": self.directory}
        quoted = (
            f"{name} = '{str(value).replace(chr(39), chr(39) * 2)}'\n" for name, value in settings.items()
        )
        self.write(self.data / "postgresql.conf", "".join(quoted))

    def _signal_reload(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def _wait_for(self, question: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.execute(question) != [(True,)]:
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self} never said yes to {question}\n{self.tail()}")
            time.sleep(0.02)
