"""``holdfast resize``: change how many permits a semaphore has."""

from __future__ import annotations

import argparse
import json

from holdfast.cli.options import Commands, add_by, add_json, add_url, me, patience
from holdfast.cli.output import count
from holdfast.cli.target import target
from holdfast.core import keys
from holdfast.core.data import as_dict
from holdfast.sync import Holdfast

DESCRIPTION = """\
Change how many permits a semaphore has. With more, those who wait get them at
once. With fewer, nobody loses what he has: new ones are granted when enough
have come back. Who waits for more than there are from now on is told so.

Clients that name another number are refused from then on (exit code 78), so
change theirs as well, or let them name none.
"""


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "resize",
        help="change how many permits a semaphore has",
        usage="holdfast resize KEY PERMITS [options]",
        description=DESCRIPTION,
    )
    parser.add_argument("key", metavar="KEY", help="the name of the semaphore")
    parser.add_argument("permits", type=int, metavar="PERMITS", help="how many it is to have, 1 or more")
    add_by(parser)
    add_json(parser, "write the outcome as one JSON object")
    add_url(parser)
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Set the number, and say what it was."""
    key = keys.validate(args.key)
    with Holdfast(target(args), wait_for_store=patience(args)) as locks:
        resized = locks.resize(key, args.permits, by=args.by or me())
    if args.json:
        print(json.dumps({"key": key, **as_dict(resized)}))
    else:
        before = f"it had {resized.before}" if resized.before else "nobody had said a number before"
        print(f"{key!r} has {count(resized.permits, 'permit')} now; {before}")
    return 0
