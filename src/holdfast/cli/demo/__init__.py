"""``holdfast demo``: real processes share a lock before your eyes, and the end checks what was claimed."""

from __future__ import annotations

import argparse

from holdfast.cli.options import Commands
from holdfast.server.settings import PORT

DESCRIPTION = """\
Five real processes share one lock in a temporary SQLite file: they hand it
over in turn, one of them is killed while it holds the lock, another one is
paused and comes back too late. Takes about 12 seconds, and leaves nothing
behind.

At the end the claims are checked against what the processes and the store
recorded; the exit code is 1 if one does not hold. Without a terminal the show
is written line by line.

With --server it is a lock server instead, with five processes that use it, to
be watched in its dashboard until Ctrl-C ends it: queues, readers and writers, a
semaphore, an operation that is done once for all, a leader, a fleet of engines
that work through workflows, and now and then a crash.
"""


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="watch processes share locks, here or in the dashboard",
        usage="holdfast demo [options]",
        description=DESCRIPTION,
    )
    parser.add_argument("--plain", action="store_true", help="write lines, also where there is a terminal")
    parser.add_argument("--server", action="store_true", help="a lock server with traffic, and its dashboard")
    parser.add_argument(
        "--port", type=int, default=PORT, metavar="N", help=f"of that server; 0 for any (default: {PORT})"
    )
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Play the show."""
    if args.server:  # only who wants a show pays for it
        from holdfast.cli.demo import live

        return live.play(port=args.port)
    from holdfast.cli.demo.stage import play

    return play(plain=args.plain)
