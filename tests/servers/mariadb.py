"""A private MariaDB server.

Two users, both without password: ``root``, and ``holdfast``, which may do what an application may. It is no
superuser, so a server that is set read-only is read-only for it.
"""

from __future__ import annotations

import shutil
import signal
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.servers.binaries import need
from tests.servers.ports import HOST
from tests.servers.scratch import scratch
from tests.servers.server import Server

ADMIN, OWNER = "root", "holdfast"

# The first line makes the server know users at all, while it is being set up.
_GRANT = f"""
FLUSH PRIVILEGES;
CREATE USER {OWNER}@'%';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, EXECUTE, TRIGGER, LOCK TABLES,
    CREATE VIEW, SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, CREATE TEMPORARY TABLES, PROCESS
    ON *.* TO {OWNER}@'%';
"""

_QUICK: dict[str, str | int] = {
    "innodb_flush_log_at_trx_commit": 0,
    "innodb_flush_method": "nosync",
    "innodb_doublewrite": 0,
    "sync_frm": 0,
}


class MariaDBServer(Server):
    """A MariaDB server. Unless it is *durable*, a kill may take the commits of the last second with it."""

    program = "mariadbd"
    accounts = ("mysql",)
    stopping = signal.SIGTERM

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
            "bind_address": HOST,
            "max_connections": 300,
            "skip_name_resolve": 1,
            "innodb_buffer_pool_size": "32M",
            "innodb_log_file_size": "8M",
            **({} if self.durable else _QUICK),
        }

    @property
    def place(self) -> Path:
        return self.data

    def prepare(self) -> None:
        # Its own: a server that starts deletes what it takes for its leftovers, those of a running one too.
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        if self.account is not None:
            shutil.chown(temporary, self.account)
        if not self.data.exists():
            scratch().copy("install-db", self.account, self._initialise, self.data)
        settings = {
            **self.settings,
            "port": self.port,
            "datadir": self.data,
            "tmpdir": temporary,
            "socket": self.directory / "socket",
        }
        lines = [f"{name} = {value}\n" for name, value in settings.items()]
        self.write(self.directory / "my.cnf", "".join(["[mariadbd]\n", *lines]))

    def command(self) -> list[str | Path]:
        return [need("mariadbd"), f"--defaults-file={self.directory / 'my.cnf'}"]

    def is_ready(self) -> bool:
        return self.has_said("ready for connections")

    def url(self, database: str = "", *, user: str = OWNER, **options: str | int) -> str:
        """Tell the URL of *database*; who reads it says what *options* there are."""
        query = f"?{urlencode(options)}" if options else ""
        return f"mysql://{user}@{HOST}:{self.port}/{database}{query}"

    def execute(self, statement: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run *statement* as root, and give the rows."""
        import pymysql  # not above: most tests need no driver, and all load the fixtures

        with pymysql.connect(
            host=HOST,
            port=self.port,
            user=ADMIN,
            database=database,
            connect_timeout=5,
            autocommit=True,
            ssl_disabled=True,  # else PyMySQL reads all certificates of the machine, 25 ms a connection
        ) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            return list(cursor.fetchall())

    def create_database(self) -> str:
        """Make an empty database and give its URL."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop the database of *url*. Who is connected is thrown out: an open transaction would block."""
        import pymysql

        name = urlsplit(url).path[1:]
        for (connection,) in self.execute(
            f"SELECT id FROM information_schema.processlist WHERE db = '{name}'"
        ):
            try:
                self.execute(f"KILL {connection}")
            except pymysql.err.MySQLError:  # it left by itself
                continue
        self.execute(f"DROP DATABASE IF EXISTS {name}")

    def configure(self, **settings: str | int) -> None:
        """Change global variables now, for new sessions, and for every start from now on."""
        self.settings |= settings
        for name, value in settings.items():
            self.execute(f"SET GLOBAL {name} = {value if isinstance(value, int) else repr(value)}")

    def _initialise(self, directory: Path) -> None:
        grant = self.directory / "grant.sql"
        self.write(grant, _GRANT)
        options = [
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
            f"--tmpdir={self.directory / 'tmp'}",
        ]
        quick = [f"--{name}={value}" for name, value in _QUICK.items()]
        self.call(
            [
                need("mariadb-install-db"),
                "--no-defaults",
                f"--datadir={directory}",
                f"--extra-file={grant}",
                "--innodb-log-file-size=8M",
                *options,
                *quick,
            ],
            directory,
        )
