"""``holdfast show``: one lock with its queue and its history."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from holdfast.cli.ls import STYLES, state_text
from holdfast.cli.options import Unsuccessful, add, add_store, patience
from holdfast.cli.output import (
    BOLD,
    HOLDERS_SHOWN,
    clean,
    duration_text,
    event_text,
    holders_of,
    moment_text,
    paint,
    print_line,
    print_rows,
)
from holdfast.cli.target import existing
from holdfast.client.sync.client import Holdfast
from holdfast.core import keys
from holdfast.core.data import as_dict
from holdfast.core.events import Event
from holdfast.core.family import whereabouts
from holdfast.core.requests import Holder, LockView, Waiter

DESCRIPTION = """\
Show one lock: who holds it and how, who waits for it in which order, and what
is in its history. How much is in the history is up to the clients; by default
they keep what went wrong, and everything of operations.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    add(parser, "key KEY", "the name of the lock")
    add(parser, "--limit N", "how much history to show (default: 20 events)", default=20)
    add_store(parser, json="write one JSON object")


def call(args: argparse.Namespace) -> None:
    """Print the lock."""
    with Holdfast(existing(args), wait_for_store=patience(args)) as locks:
        view = locks.inspect(keys.validate(args.key))
        events = locks.history(args.key, limit=args.limit)
    if view is None and not events:
        raise Unsuccessful(f"{args.key!r} was never used, or long ago")
    if args.json:
        data: dict[str, object] = {"key": args.key} if view is None else as_dict(view)
        data["history"] = [as_dict(event) for event in events]
        print(json.dumps(data))
        return
    print(paint(clean(args.key), BOLD))
    if view is not None:
        _print_lock(view)
        _print_queue(view)
    print_history(events)


def _print_lock(view: LockView) -> None:
    print_line("state", paint(state_text(view), STYLES[view.state]))
    if view.kept is not None:
        done = f"done by {clean(view.kept.owner)}, token {view.kept.token}"
        print_line("result", f"kept for another {duration_text(view.kept_for)} ({done})")
    holders = holders_of(view)
    if view.permits:
        print_line("permits", f"{view.permits}, {sum(holder.take for holder in holders)} taken")
    if len(holders) > 1:
        print_line("holders", f"{len(holders)}{'' if len(holders) < HOLDERS_SHOWN else ' or more'}")
        print_rows([_holder_row(holder) for holder in holders], numbered=True)
        return
    print_line("token", f"{view.token}" if view.holder else f"{view.token} (of the last lease)")
    if view.holder is None:
        return
    holder = view.holder
    owner, where = _who(holder)
    print_line("owner", owner + _unclaimed(holder))
    print_line("where", where)
    left = f"ends in {duration_text(view.expires_in)} unless it is renewed"
    if holder.gone:
        print_line("granted", f"{duration_text(holder.held_for)} ago")
        left = f"is over; the lock opens in {duration_text(view.expires_in)}"
    else:
        held = f", {view.holds} holds" if view.holds > 1 else ""
        print_line("held for", duration_text(holder.held_for) + held)
    print_line("lease", left if view.state == "held" else "is over; that takes effect when somebody asks")


def _holder_row(holder: Holder) -> tuple[str, ...]:
    permits = f"{holder.take} permits" if holder.take > 1 else ""
    held = f"for {duration_text(holder.held_for)}"
    return str(holder.token), *_who(holder), held, permits + _unclaimed(holder)


def _who(each: Holder | Waiter) -> tuple[str, str]:
    return clean(each.owner), whereabouts(clean(each.host), each.pid)


def _unclaimed(holder: Holder) -> str:
    return "" if holder.claimed else " (handed over, not claimed yet)"


def _print_queue(view: LockView) -> None:
    print_line("waiting", view.waiting or "nobody")
    rows = [
        (str(place), *_who(waiter), f"for {duration_text(waiter.waiting_for)}")
        for place, waiter in enumerate(view.waiters, start=1)
    ]
    print_rows(rows, numbered=True)
    if view.waiting > len(view.waiters):
        print(f"     … and {view.waiting - len(view.waiters)} more")


def print_history(events: Sequence[Event]) -> None:
    """Print what was kept of what happened to a key."""
    print_line("history", "" if events else "nothing was kept")
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
    print_rows(rows, numbered=True)
