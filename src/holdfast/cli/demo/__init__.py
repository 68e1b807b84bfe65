"""``holdfast demo``: real processes share a lock before your eyes, and the end checks what was claimed."""

from __future__ import annotations

import argparse

from holdfast.cli.options import Commands

DESCRIPTION = """\
Five real processes share one lock in a temporary SQLite file: they hand it
over in turn, one of them is killed while it holds the lock, another one is
paused and comes back too late. Takes about 12 seconds, and leaves nothing
behind.

At the end the claims are checked against what the processes and the store
recorded; the exit code is 1 if one does not hold. Without a terminal the show
is written line by line.
"""


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="watch five processes share a lock",
        usage="holdfast demo [options]",
        description=DESCRIPTION,
    )
    parser.add_argument("--plain", action="store_true", help="write lines, also where there is a terminal")
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Play the show."""
    from holdfast.cli.demo.stage import play  # only who wants the show pays for it

    return play(plain=args.plain)
