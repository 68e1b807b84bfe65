"""The command line. Each command is a file; this one finds it, runs it, and turns errors into exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from holdfast import __version__, errors
from holdfast.cli import (
    breaking,
    completion,
    demo,
    doctor,
    every,
    instances,
    ls,
    resize,
    run,
    schema,
    serve,
    show,
    sweep,
    token,
    watch,
    work,
)
from holdfast.cli.interrupts import Interrupted
from holdfast.cli.options import USAGE, Parser, add_url
from holdfast.cli.output import report_log, say
from holdfast.cli.splitting import split
from holdfast.cli.target import refuse_url

COMMANDS = (
    run,
    every,
    ls,
    show,
    watch,
    breaking,
    resize,
    work,
    instances,
    sweep,
    schema,
    serve,
    token,
    doctor,
    demo,
    completion,
)
BROKEN_PIPE = 141  # as a shell would show a program that SIGPIPE ended

DESCRIPTION = """\
Locks that hold across threads and processes, kept in SQL: in an SQLite
file, or in PostgreSQL, MySQL or MariaDB; or behind a lock server.

The store is given by --url or $HOLDFAST_URL; without either it is a file of
yours.
"""

EPILOG = """\
examples:
  holdfast run nightly-report -- ./report.sh   run it under the lock
  holdfast every '*/5 * * * *' -- ./poll.sh    run it once a tick, on one node
  holdfast ls                                  who holds what
  holdfast show nightly-report                 one lock, its queue, its history
  holdfast watch 'pull:*'                      what happens, as it happens
  holdfast work                                what is to be done, and by whom
  holdfast serve                               the lock server and its dashboard
  holdfast doctor                              does everything work?
  holdfast demo                                watch five processes share a lock

'holdfast COMMAND --help' says more about each.
"""


def make_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="holdfast", usage="holdfast COMMAND ...", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument(
        "--version", action="version", version=f"holdfast {__version__}", help="print the version"
    )
    add_url(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND ...", prog="holdfast")
    for command in COMMANDS:
        command.add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    report_log()
    if isinstance(sys.stdout, io.TextIOWrapper):  # not every terminal can show every key or owner
        sys.stdout.reconfigure(errors="replace")
    try:
        parser = make_parser()
        given, guarded = split(sys.argv[1:] if argv is None else list(argv), parser)
        args = parser.parse_args(given)
        if "call" not in args:
            parser.print_help()
            return USAGE
        refuse_url(args)
        args.guarded = guarded
        code: int = args.call(args)
        sys.stdout.flush()
        return code
    except errors.HoldfastError as error:
        say(error)
        return errors.exit_code(error)
    except Interrupted as interrupted:
        return 128 + interrupted.number
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Python flushes stdout once more at the end, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
