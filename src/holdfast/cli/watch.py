"""``holdfast watch``: what happens to locks, as it happens."""

from __future__ import annotations

import argparse
import json
import sys

from holdfast.cli.options import Commands, add_json, add_url, duration, patience
from holdfast.cli.output import DIM, RED, YELLOW, clean, event_text, has_colours, moment_text, paint
from holdfast.cli.target import existing
from holdfast.core.data import as_dict
from holdfast.core.events import Event
from holdfast.sync import Holdfast

DESCRIPTION = """\
Print what happens to a lock, or with PREFIX* to all locks whose keys begin so:
one line for each event, as it happens. How much there is to see is up to the
clients that use the locks; by default it is what went wrong, and everything of
operations.

The number at the beginning of a line is the event's id. With --after it goes on
behind that event, and nothing is missed and nothing comes twice, also after a
restart of this command, of the clients or of the database.
"""

EPILOG = """\
examples:
  holdfast watch 'pull:*'                   the pulls, from now on
  holdfast watch 'pull:*' --after 4711      go on behind the last line you saw
  holdfast watch '*' --after 0 --timeout 0  everything that is kept, and no more
"""

STYLES = {
    "broken": RED,
    "failed": RED,
    "deadlocked": RED,
    "died": RED,
    "forgotten": RED,
    "expired": YELLOW,
    "abandoned": YELLOW,
    "draining": YELLOW,
}
WIDEST = len("handed over")


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "watch",
        help="print what happens to locks, as it happens",
        usage="holdfast watch PATTERN [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument(
        "pattern", metavar="PATTERN", help="a key, or PREFIX* for all that begin so (quote it for the shell)"
    )
    parser.add_argument(
        "--after",
        type=int,
        metavar="ID",
        help="go on behind this event; 0: from the oldest that is kept (default: from now on)",
    )
    parser.add_argument(
        "--timeout", type=duration, metavar="S", help="end after this long without an event (default: never)"
    )
    add_json(parser, "write one JSON object a line")
    add_url(parser)
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Print the events until the timeout, or for ever."""
    colours = has_colours(sys.stdout)
    with Holdfast(existing(args), wait_for_store=patience(args)) as locks:
        for event in locks.watch(args.pattern, after=args.after, timeout=args.timeout):
            print(json.dumps(as_dict(event)) if args.json else _line(event, colours=colours), flush=True)
    return 0


def _line(event: Event, *, colours: bool) -> str:
    kind = f"{event.kind.replace('_', ' '):<{WIDEST}}"
    parts = (
        str(event.id),
        paint(moment_text(event.at), DIM, colours=colours),
        paint(kind, STYLES.get(event.kind, ""), colours=colours),
        clean(event.key),
        clean(event.owner or "-"),
        event_text(event),
    )
    return "  ".join(parts).rstrip()
