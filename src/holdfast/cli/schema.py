"""``holdfast schema``: the tables of a store. Stores differ here, so each has a few functions below."""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit

from holdfast import errors, identity
from holdfast.cli.options import Commands, add_url, confirm, url_of
from holdfast.cli.output import count, say
from holdfast.cli.target import shown, sqlite_path
from holdfast.stores import default_url, open_store
from holdfast.stores.base import StoreOptions
from holdfast.sync import Holdfast

DESCRIPTION = """\
Look at the tables that holdfast keeps in a store, or change them.

  status   say which version they have (the default)
  print    print the SQL that makes them
  apply    make them, or bring them up to this release's version
  drop     remove them, with all locks, queues and history in them

On SQLite 'apply' is for those who like to be explicit: every client does it
when it connects.
"""

REFUSED = 1


class Schema(Protocol):
    """The tables of one store."""

    def status(self) -> str:
        """Return the version in words."""

    def script(self) -> str:
        """Return the SQL of all versions."""

    def held(self) -> int:
        """Return how many locks are held, as far as there are tables."""

    def drop(self) -> int:
        """Remove the tables; return how many there were."""


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "schema",
        help="look at the store's tables, make or drop them",
        usage="holdfast schema [status|print|apply|drop] [options]",
        description=DESCRIPTION,
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=("status", "print", "apply", "drop"),
        default="status",
        metavar="ACTION",
        help="status, print, apply or drop",
    )
    parser.add_argument("--yes", action="store_true", help="drop without asking")
    add_url(parser)
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    given = url_of(args)
    url = default_url() if given is None else given
    schema = _schema_of(url)
    if args.action == "print":
        print(schema.script(), end="")
        return 0
    if args.action == "apply":
        Holdfast(url).close()
    elif args.action == "drop":
        held = f"{count(schema.held(), 'lock')} held now"
        question = f"drop all holdfast tables of {shown(url)}, with {held}?"
        if not confirm(question, yes=args.yes):
            say("nothing was done")
            return REFUSED
        print(f"dropped {count(schema.drop(), 'table')}")
    print(schema.status())
    return 0


def _schema_of(url: str) -> Schema:
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        return _SQLiteSchema(sqlite_path(url))
    open_store(url, StoreOptions(identity.new_client()))  # complains if there is no such store
    raise errors.SettingsError(f"{scheme}:// has no tables of its own")


@dataclass(frozen=True, slots=True)
class _SQLiteSchema:
    """The tables in an SQLite file. Looking at them does not make the file."""

    path: Path

    def script(self) -> str:
        from holdfast.stores.sqlite.database import SCHEMA

        return "\n".join(f"-- version {version}\n{text}" for version, text in SCHEMA)

    def status(self) -> str:
        from holdfast.stores.sqlite.database import SQL, VERSION

        if not self.path.exists():
            return f"{self.path}: no file yet; the first client makes it"
        with self._connected("ro") as connection:
            if not self._tables(connection):
                return f"{self.path}: no holdfast tables; the first client makes them (version {VERSION})"
            found = connection.execute(SQL.schema_version).fetchone()
        version = found[0] if found else None
        if version == VERSION:
            return f"{self.path}: version {version}, up to date"
        return f"{self.path}: version {version}; this release has {VERSION}"

    def held(self) -> int:
        from holdfast.stores.sqlite.database import SQL

        if not self.path.exists():
            return 0
        with self._connected("ro") as connection:
            if "holdfast_locks" not in self._tables(connection):
                return 0
            now = connection.execute(SQL.now, {"now": None}).fetchone()
            (held,) = connection.execute(
                "SELECT count(*) FROM holdfast_locks WHERE owner IS NOT NULL AND expires_at > ?", now
            ).fetchone()
        return int(held)

    def drop(self) -> int:
        if not self.path.exists():
            return 0
        with self._connected("rw") as connection:
            connection.execute("BEGIN IMMEDIATE")
            tables = self._tables(connection)
            for name in tables:
                connection.execute(f'DROP TABLE "{name}"')
            connection.execute("COMMIT")
        return len(tables)

    @contextmanager
    def _connected(self, mode: str) -> Iterator[sqlite3.Connection]:
        try:
            address = f"file:{quote(str(self.path))}?mode={mode}"
            with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise errors.StoreMisconfigured(f"{self.path}: {error}") from error

    @staticmethod
    def _tables(connection: sqlite3.Connection) -> list[str]:
        rows = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'holdfast_*' ORDER BY name"
        )
        return [name for (name,) in rows]
