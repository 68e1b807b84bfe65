"""The command line. Each command is a file; this one finds it, runs it, and turns errors into exit codes.

A command returns its exit code; None means that all is well.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from holdfast import __version__, errors
from holdfast.cli import (
    break_,
    completion,
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
from holdfast.cli.options import USAGE, Parser, Unsuccessful, add_store, split
from holdfast.cli.output import report_log, say
from holdfast.cli.target import refuse_url

# In the order of the list of commands: the module, what the list says of it, and what follows its name.
COMMANDS = (
    (run, "run a command while holding a lock", "KEY [options] -- COMMAND [ARG ...]"),
    (every, "run a command on a schedule, on one of all nodes", "SCHEDULE [options] -- COMMAND [ARG ...]"),
    (ls, "list locks", "[PREFIX] [options]"),
    (show, "show one lock, its queue and its history", "KEY [options]"),
    (watch, "print what happens to locks, as it happens", "PATTERN [options]"),
    (break_, "take a lock away from its holder", "KEY --reason TEXT [options]"),
    (resize, "change how many permits a semaphore has", "KEY PERMITS [options]"),
    (work, "look at work, offer it, retry or forget it", f"[{'|'.join(work.ACTIONS)}] [KEY ...] [options]"),
    (instances, "list the instances that have joined to do work", "[options]"),
    (sweep, "tidy the store", "[options]"),
    (schema, "look at the store's tables, make or drop them", f"[{schema.SYNOPSIS}] [URL] [options]"),
    (serve, "serve locks over HTTP, with a dashboard", "[options]"),
    (token, "make, list and revoke the access tokens of a server", token.SYNOPSIS),
    (doctor, "check everything between here and the store", "[URL] [options]"),
    (completion, "print a script for a shell's completion", "bash|zsh|fish"),
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

'holdfast COMMAND --help' says more about each.
"""


def make_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="holdfast", usage="holdfast COMMAND ...", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument(
        "--version", action="version", version=f"holdfast {__version__}", help="print the version"
    )
    add_store(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND ...", prog="holdfast")
    for module, help, usage in COMMANDS:
        name = module.__name__.rpartition(".")[2].removesuffix("_")
        command = commands.add_parser(
            name,
            help=help,
            usage=f"holdfast {name} {usage}",
            description=module.DESCRIPTION,
            epilog=getattr(module, "EPILOG", None),
        )
        module.add_options(command)
        command.set_defaults(call=module.call)
        command.about = help
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
        args.guarded, args.parser = guarded, parser
        code: int | None = args.call(args)
        sys.stdout.flush()
        return code or 0
    except errors.HoldfastError as error:
        say(error)
        return errors.exit_code(error)
    except Unsuccessful as why:
        say(why)
        return why.code
    except Interrupted as interrupted:
        return 128 + interrupted.number
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Python flushes stdout once more at the end, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
