"""``holdfast resize``: change how many permits a semaphore has."""

from __future__ import annotations

import argparse

from holdfast.cli.options import add, add_by, add_store, me, patience
from holdfast.cli.output import count, tell
from holdfast.cli.target import target
from holdfast.client.sync.client import Holdfast
from holdfast.core import keys
from holdfast.core.data import as_dict

DESCRIPTION = """\
Change how many permits a semaphore has. With more, those who wait get them at
once. With fewer, nobody loses what he has: new ones are granted when enough
have come back. Who waits for more than there are from now on is told so.

Clients that name another number are refused from then on (exit code 78), so
change theirs as well, or let them name none.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    add(parser, "key KEY", "the name of the semaphore")
    add(parser, "permits PERMITS", "how many it is to have, 1 or more", type=int)
    add_by(parser)
    add_store(parser, json="write the outcome as one JSON object")


def call(args: argparse.Namespace) -> None:
    """Set the number, and say what it was."""
    key = keys.validate(args.key)
    with Holdfast(target(args), wait_for_store=patience(args)) as locks:
        resized = locks.resize(key, args.permits, by=args.by or me())
    before = f"it had {resized.before}" if resized.before else "nobody had said a number before"
    text = f"{key!r} has {count(resized.permits, 'permit')} now; {before}"
    tell(args, {"key": key, **as_dict(resized)}, text)
