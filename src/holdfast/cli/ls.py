"""``holdfast ls``: many locks in a table."""

from __future__ import annotations

import argparse

from holdfast.cli.options import add, add_store, patience
from holdfast.cli.output import DIM, GREEN, YELLOW, Layout, clean, duration_text, print_json, print_table, say
from holdfast.cli.target import looked_at, or_empty, shown
from holdfast.client.sync.client import Holdfast
from holdfast.core.data import as_dict
from holdfast.core.requests import LockState, LockView

DESCRIPTION = """\
List the locks of a store in the order of their keys: who holds them, for how
long, when the lease ends unless it is renewed, and how many wait. A lock that
several may hold together is marked, and the first of them is shown; 'show' has
all of them.

Locks that nobody holds are left out, and a line says so: those that are free,
and will be forgotten an hour or so after their last use, and those whose lease
ran out and that nobody has asked for since. With --all they are listed, too.
"""

LAYOUT = Layout(
    header=("KEY", "STATE", "OWNER", "HOST:PID", "HELD FOR", "LEASE LEFT", "WAITING", "TOKEN"),
    right=frozenset({"HELD FOR", "LEASE LEFT", "WAITING", "TOKEN"}),
    shrink={"KEY": 12, "OWNER": 8, "HOST:PID": 8},  # a part of a token says nothing
    drop=("HOST:PID", "OWNER", "TOKEN", "WAITING", "HELD FOR", "LEASE LEFT"),
)
STYLES = {"held": GREEN, "expired": YELLOW, "free": DIM}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    add(parser, "prefix PREFIX", "only keys that begin so", nargs="?", default="")
    add(parser, "--owner OWNER", "only locks of this owner")
    add(parser, "--type TYPE", "only keys of this type, i.e. beginning with TYPE:")
    which = parser.add_mutually_exclusive_group()
    add(which, "--all", "also those that nobody holds")
    add(which, "--state STATE", "held (the default), expired, free or all", choices=(*STYLES, "all"))
    add_store(parser, json="write one JSON object a line")


def call(args: argparse.Namespace) -> None:
    """Print the locks."""
    only_held = args.state is None and not args.all
    args.state = args.state or ("all" if args.all else "held")
    url = looked_at(args)
    with Holdfast(or_empty(url), wait_for_store=patience(args)) as locks:
        state = None if args.state == "all" else args.state
        views = locks.list(args.prefix, owner=args.owner, type=args.type, state=state)
        if args.json:
            print_json(map(as_json, views))
        elif found := list(views):
            print_table(LAYOUT, [_row(view) for view in found], [STYLES[view.state] for view in found], 1)
        else:
            _print_nothing(args, url)
        if only_held and not args.json:
            _say_what_is_left_out(args, locks)


def _say_what_is_left_out(args: argparse.Namespace, locks: Holdfast) -> None:
    others: tuple[LockState, ...] = ("expired", "free")
    there = [
        state
        for state in others
        if next(iter(locks.list(args.prefix, owner=args.owner, type=args.type, state=state)), None)
    ]
    if there:
        say(f"there are others, which are {' or '.join(there)}: see --all")


def as_json(view: LockView) -> dict[str, object]:
    """Return a lock as plain data, without waiters and all holders: a list does not have them."""
    data: dict[str, object] = as_dict(view)
    del data["waiters"], data["holders"]
    return data


def _print_nothing(args: argparse.Namespace, url: str) -> None:
    """Say where we looked: most often it is the wrong store. To stderr, for stdout may be counted."""
    such = "such " if args.prefix or args.owner or args.type else ""
    say(f"no {such}locks are {'' if args.state == 'all' else f'{args.state} '}in {shown(url)}")


def state_text(view: LockView) -> str:
    """Return the state of a lock, and how it is held if that is not as ever."""
    if view.holder is not None and view.holder.gone:
        return "held (shut)"
    if view.holder is None or view.mode == "exclusive":
        return view.state
    return f"{view.state} ({'shared' if view.mode == 'shared' else f'of {view.permits}'})"


def _row(view: LockView) -> tuple[str, ...]:
    waiting = str(view.waiting) if view.waiting else "-"
    if view.holder is None:
        return (clean(view.key), view.state, "-", "-", "-", "-", waiting, str(view.token))
    holder = view.holder
    return (
        clean(view.key),
        state_text(view),
        clean(holder.owner),
        f"{clean(holder.host)}:{holder.pid}" if holder.pid else clean(holder.host),
        duration_text(holder.held_for),
        duration_text(view.expires_in) if view.state == "held" else "-",
        waiting,
        str(view.token),
    )
