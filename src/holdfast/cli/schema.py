"""``holdfast schema``: the tables of a store."""

from __future__ import annotations

import argparse

from holdfast import errors
from holdfast.cli.options import add, add_store, confirm, patience, url_of
from holdfast.cli.output import count, say
from holdfast.cli.target import shown
from holdfast.identity import new_client
from holdfast.stores import default_url, open_tables
from holdfast.stores.base import UP_TO_DATE, StoreOptions
from holdfast.stores.readiness import when_ready

DESCRIPTION = """\
Look at the tables that holdfast keeps in a store, or change them.

  status       say which version they have (the default); the exit code is 79
               unless they are there, and up to date
  print        print the SQL that makes them
  apply        make them, or bring them up to this release's version
  grants ROLE  print the SQL that lets ROLE use them, and no more than that
  drop         remove them, with all locks, queues and history in them

On SQLite 'apply' is for those who like to be explicit: every client does it
when it connects. On a server it has to be done once, by somebody who may
create tables; the clients then need no such right, but what 'grants' prints.
'apply --grant ROLE' does both.
"""

EPILOG = """\
examples:
  holdfast schema apply --grant app postgresql://owner@db.internal/app
  holdfast schema grants 'app@10.%' mysql://owner@db.internal/app
"""

ACTIONS = ("status", "print", "apply", "grants", "drop")
SYNOPSIS = "status|print|apply|grants ROLE|drop"
NOT_READY = errors.CODES[errors.SchemaMismatch][0]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    actions = "status, print, apply, grants or drop"
    add(parser, "action ACTION", actions, nargs="?", choices=ACTIONS, default="status")
    add(parser, "words URL", "where the locks are kept, as with --url", nargs="*", default=[])
    parser.rest = "words"  # type: ignore[attr-defined]
    add(parser, "--grant ROLE", "apply: let this role use them; on MySQL USER, or USER@HOST")
    add(parser, "--server", "grants, --grant: also what the role of a lock server needs")
    add(parser, "--yes", "drop without asking")
    add_store(parser)


def call(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    if args.grant is not None and args.action != "apply":
        raise errors.SettingsError("--grant is for 'holdfast schema apply'")
    if args.server and args.action != "grants" and args.grant is None:
        raise errors.SettingsError("--server is for 'holdfast schema grants ROLE' and 'apply --grant ROLE'")
    url, role = _words(args)
    schema = open_tables(url, StoreOptions(new_client()))
    if args.action == "print":
        print(schema.script(), end="")
        return 0
    if role is not None:
        granted = schema.grants(role, serving=args.server)  # complains before anything is done
    if args.action == "grants":
        print(granted, end="")
        return 0
    if args.action == "apply":
        when_ready(schema.apply, patience(args))
        if role is not None:
            schema.grant(role, serving=args.server)
            say(f"{role} may use them")
    elif args.action == "drop":
        held = f"{count(when_ready(schema.held, patience(args)), 'lock')} held now"
        question = f"drop all holdfast tables of {shown(url)}, with {held}?"
        confirm(question, yes=args.yes)
        print(f"dropped {count(schema.drop(), 'table')}")
    status = when_ready(schema.status, patience(args))
    print(status)
    return NOT_READY if args.action == "status" and not status.endswith(UP_TO_DATE) else 0


def _words(args: argparse.Namespace) -> tuple[str, str | None]:
    """Return the url, and the role if one is named."""
    words: list[str] = list(args.words)
    role: str | None = args.grant
    if args.action == "grants":
        if not words or "://" in words[0]:
            raise errors.SettingsError("to whom? Write 'holdfast schema grants ROLE URL'")
        role = words.pop(0)
    given = url_of(args)
    if len({*words, *([] if given is None else [given])}) > 1:
        raise errors.SettingsError("give the url once, not twice")
    url = words[0] if words else given
    return default_url() if url is None else url, role
