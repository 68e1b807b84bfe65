"""``holdfast watch``: what happens to locks, as it happens."""

from __future__ import annotations

import argparse
import sys

from holdfast.cli.options import add, add_store, patience
from holdfast.cli.output import DIM, RED, YELLOW, clean, event_text, moment_text, paint, tell
from holdfast.cli.target import existing
from holdfast.client.sync.client import Holdfast
from holdfast.core.data import as_dict
from holdfast.core.events import Event

DESCRIPTION = """\
Print what happens to a lock, or with PREFIX* to all locks whose keys begin so:
one line for each event, as it happens. How much there is to see is up to the
clients that use the locks; by default it is what went wrong, and everything of
operations.

The number at the beginning of a line is the event's id. With --after it goes on
after that event, and nothing is missed and nothing comes twice, also after a
restart of this command, of the clients or of the database.
"""

EPILOG = """\
examples:
  holdfast watch 'pull:*'                   the pulls, from now on
  holdfast watch 'pull:*' --after 4711      go on after the last line you saw
  holdfast watch '*' --after 0 --timeout 0  everything that is kept, and no more
"""

STYLES = {
    **dict.fromkeys(("broken", "failed", "deadlocked", "died", "forgotten"), RED),
    **dict.fromkeys(("expired", "abandoned", "draining"), YELLOW),
}
WIDEST = len("handed over")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    add(parser, "pattern PATTERN", "a key, or PREFIX* for all that begin so (quote it for the shell)")
    after = "go on after this event; 0: from the oldest that is kept (default: from now on)"
    add(parser, "--after ID", after, type=int)
    add(parser, "--timeout S", "end after this long without an event (default: never)")
    add_store(parser, json="write one JSON object a line")


def call(args: argparse.Namespace) -> None:
    """Print the events until the timeout, or for ever."""
    with Holdfast(existing(args), wait_for_store=patience(args)) as locks:
        for event in locks.watch(args.pattern, after=args.after, timeout=args.timeout):
            tell(args, as_dict(event), _line(event))
            sys.stdout.flush()


def _line(event: Event) -> str:
    kind = f"{event.kind.replace('_', ' '):<{WIDEST}}"
    parts = (
        str(event.id),
        paint(moment_text(event.at), DIM),
        paint(kind, STYLES.get(event.kind, "")),
        clean(event.key),
        clean(event.owner or "-"),
        event_text(event),
    )
    return "  ".join(parts).rstrip()
