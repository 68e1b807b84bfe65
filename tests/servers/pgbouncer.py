"""A private PgBouncer before a PostgreSQL server, in transaction mode: what many programs really talk to.

There, each transaction may run in another session. So whatever a session keeps (settings, advisory locks,
LISTEN, prepared statements) is lost or, worse, somebody else's.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from tests.servers.binaries import need
from tests.servers.ports import HOST, with_port
from tests.servers.postgres import ADMIN, OWNER, PostgresServer
from tests.servers.server import Server


class PgBouncer(Server):
    """A pooler in front of *server*, for all its databases."""

    program = "pgbouncer"
    accounts = ("postgres",)
    stopping = signal.SIGTERM

    def __init__(self, server: PostgresServer, *, settings: Mapping[str, str | int] | None = None) -> None:
        self.server = server
        super().__init__(settings)

    def defaults(self) -> dict[str, str | int]:
        return {
            "listen_addr": HOST,
            "pool_mode": "transaction",
            "max_client_conn": 500,
            "default_pool_size": 20,
            "auth_type": "trust",
            "admin_users": ADMIN,
            "unix_socket_dir": "",
        }

    def prepare(self) -> None:
        users = self.directory / "users"
        self.write(users, f'"{ADMIN}" ""\n"{OWNER}" ""\n')
        settings = {**self.settings, "listen_port": self.port, "auth_file": users}
        lines = [f"{name} = {value}\n" for name, value in settings.items()]
        databases = f"[databases]\n* = host={HOST} port={self.server.port}\n"
        self.write(self.directory / "pgbouncer.ini", "".join([databases, "[pgbouncer]\n", *lines]))

    def command(self) -> list[str | Path]:
        return [need("pgbouncer"), self.directory / "pgbouncer.ini"]

    def is_ready(self) -> bool:
        return self.has_said(f"listening on {HOST}:{self.port}")

    def url(self, database: str = "postgres", *, user: str = OWNER, **options: str | int) -> str:
        """Tell the URL of *database* through the pooler. The database ``pgbouncer`` is its console."""
        return self.through(self.server.url(database, user=user, **options))

    def through(self, url: str) -> str:
        """Give the *url* of a database of the server as it is called through the pooler."""
        return with_port(url, self.port)
