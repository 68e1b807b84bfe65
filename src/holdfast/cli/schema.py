"""``holdfast schema``: the tables of a store."""

from __future__ import annotations

import argparse

from holdfast import errors
from holdfast.cli.options import Commands, add_url, confirm, url_of
from holdfast.cli.output import count, say
from holdfast.cli.target import shown
from holdfast.identity import new_client
from holdfast.stores import default_url, open_tables
from holdfast.stores.base import StoreOptions

DESCRIPTION = """\
Look at the tables that holdfast keeps in a store, or change them.

  status   say which version they have (the default)
  print    print the SQL that makes them
  apply    make them, or bring them up to this release's version
  drop     remove them, with all locks, queues and history in them

On SQLite 'apply' is for those who like to be explicit: every client does it
when it connects. On a server it has to be done once, by somebody who may
create tables; the clients then need no such right.
"""

REFUSED = 1


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "schema",
        help="look at the store's tables, make or drop them",
        usage="holdfast schema [status|print|apply|drop] [URL] [options]",
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
    parser.add_argument("store", nargs="?", metavar="URL", help="where the locks are kept, as with --url")
    parser.add_argument("--yes", action="store_true", help="drop without asking")
    add_url(parser)
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    given = url_of(args)
    if args.store is not None:
        if given is not None and given != args.store:
            raise errors.SettingsError("give the url once, not twice")
        given = args.store
    url = default_url() if given is None else given
    schema = open_tables(url, StoreOptions(new_client()))
    if args.action == "print":
        print(schema.script(), end="")
        return 0
    if args.action == "apply":
        schema.apply()
    elif args.action == "drop":
        held = f"{count(schema.held(), 'lock')} held now"
        question = f"drop all holdfast tables of {shown(url)}, with {held}?"
        if not confirm(question, yes=args.yes):
            say("nothing was done")
            return REFUSED
        print(f"dropped {count(schema.drop(), 'table')}")
    print(schema.status())
    return 0
