"""Real processes share a lock before your eyes, and the end checks what was claimed.

From a checkout: ``make show``, or ``make demo`` for a lock server with traffic to watch in its dashboard.
"""

from __future__ import annotations

import sys

from examples.demo.stage import play
from holdfast import errors
from holdfast.cli.interrupts import Interrupted
from holdfast.cli.options import Parser
from holdfast.cli.output import report_log, say
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


def main() -> int:
    """Play the show; return the exit code."""
    parser = Parser(prog="demo", usage="python -m examples.demo [options]", description=DESCRIPTION)
    parser.add_argument("--plain", action="store_true", help="write lines, also where there is a terminal")
    parser.add_argument("--server", action="store_true", help="a lock server with traffic, and its dashboard")
    parser.add_argument(
        "--port", type=int, default=PORT, metavar="N", help=f"of that server; 0 for any (default: {PORT})"
    )
    args = parser.parse_args()
    report_log()
    try:
        if args.server:
            from examples.demo import live  # which needs what a server needs

            return live.play(port=args.port)
        return play(plain=args.plain)
    except errors.HoldfastError as error:
        say(error)
        return errors.exit_code(error)
    except Interrupted as interrupted:
        return 128 + interrupted.number


if __name__ == "__main__":
    sys.exit(main())
