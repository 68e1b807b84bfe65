"""``holdfast show``: one lock with its queue and its history."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from holdfast.cli.ls import STYLES, state_text
from holdfast.cli.options import Commands, add_json, add_url, patience
from holdfast.cli.output import (
    BOLD,
    DIM,
    HOLDERS_SHOWN,
    clean,
    duration_text,
    event_text,
    has_colours,
    holders_of,
    moment_text,
    paint,
    say,
    table,
)
from holdfast.cli.target import existing
from holdfast.core import keys
from holdfast.core.data import as_dict
from holdfast.core.events import Event
from holdfast.core.family import whereabouts
from holdfast.core.requests import Holder, LockView
from holdfast.sync import Holdfast

DESCRIPTION = """\
Show one lock: who holds it and how, who waits for it in which order, and what
is in its history. How much is in the history is up to the clients; by default
they keep what went wrong, and everything of operations.
"""

NOTHING = 1


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "show",
        help="show one lock, its queue and its history",
        usage="holdfast show KEY [options]",
        description=DESCRIPTION,
    )
    parser.add_argument("key", metavar="KEY", help="the name of the lock")
    parser.add_argument(
        "--limit", type=int, default=20, metavar="N", help="how much history to show (default: 20 events)"
    )
    add_json(parser, "write one JSON object")
    add_url(parser)
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Print the lock; 1 if there is none."""
    with Holdfast(existing(args), wait_for_store=patience(args)) as locks:
        view = locks.inspect(keys.validate(args.key))
        events = locks.history(args.key, limit=args.limit)
    if view is None and not events:
        say(f"{args.key!r} was never used, or long ago")
        return NOTHING
    if args.json:
        data: dict[str, object] = {"key": args.key} if view is None else as_dict(view)
        data["history"] = [as_dict(event) for event in events]
        print(json.dumps(data))
        return 0
    colours = has_colours(sys.stdout)
    print(paint(clean(args.key), BOLD, colours=colours))
    if view is not None:
        _print_lock(view, colours=colours)
        _print_queue(view, colours=colours)
    print_history(events, colours=colours)
    return 0


def _print_lock(view: LockView, *, colours: bool) -> None:
    def line(name: str, text: str) -> None:
        print(f"  {paint(f'{name:<9}', DIM, colours=colours)} {text}")

    line("state", paint(state_text(view), STYLES[view.state], colours=colours))
    if view.kept is not None:
        done = f"done by {clean(view.kept.owner)}, token {view.kept.token}"
        line("result", f"kept for another {duration_text(view.kept_for)} ({done})")
    holders = holders_of(view)
    if view.permits:
        line("permits", f"{view.permits}, {sum(holder.take for holder in holders)} taken")
    if len(holders) > 1:
        line("holders", f"{len(holders)}{'' if len(holders) < HOLDERS_SHOWN else ' or more'}")
        _print_table([_holder_row(holder) for holder in holders])
        return
    line("token", f"{view.token}" if view.holder else f"{view.token} (of the last lease)")
    if view.holder is None:
        return
    holder = view.holder
    line("owner", clean(holder.owner) + ("" if holder.claimed else " (handed over, not claimed yet)"))
    line("where", whereabouts(clean(holder.host), holder.pid))
    left = f"ends in {duration_text(view.expires_in)} unless it is renewed"
    if holder.gone:
        line("granted", f"{duration_text(holder.held_for)} ago")
        left = f"is over; the lock opens in {duration_text(view.expires_in)}"
    else:
        held = f", {view.holds} holds" if view.holds > 1 else ""
        line("held for", duration_text(holder.held_for) + held)
    line("lease", left if view.state == "held" else "is over; that takes effect when somebody asks")


def _holder_row(holder: Holder) -> tuple[str, ...]:
    return (
        str(holder.token),
        clean(holder.owner),
        whereabouts(clean(holder.host), holder.pid),
        f"for {duration_text(holder.held_for)}",
        (f"{holder.take} permits" if holder.take > 1 else "")
        + ("" if holder.claimed else " (handed over, not claimed yet)"),
    )


def _print_queue(view: LockView, *, colours: bool) -> None:
    print(f"  {paint('waiting  ', DIM, colours=colours)} {view.waiting or 'nobody'}")
    rows = [
        (
            str(place),
            clean(waiter.owner),
            whereabouts(clean(waiter.host), waiter.pid),
            f"for {duration_text(waiter.waiting_for)}",
        )
        for place, waiter in enumerate(view.waiters, start=1)
    ]
    _print_table(rows)
    if view.waiting > len(view.waiters):
        print(f"     … and {view.waiting - len(view.waiters)} more")


def print_history(events: Sequence[Event], *, colours: bool) -> None:
    """Print what was kept of what happened to a key."""
    print(f"  {paint('history  ', DIM, colours=colours)} {'' if events else 'nothing was kept'}".rstrip())
    rows = [
        (
            str(event.number),
            moment_text(event.at),
            event.kind.replace("_", " "),
            clean(event.owner or "-"),
            event_text(event),
        )
        for event in events
    ]
    _print_table(rows)


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    if rows:
        for row in table(rows, right=frozenset({0}), shrink={}, width=None):
            print("     " + "  ".join(row).rstrip())
