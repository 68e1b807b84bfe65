"""``holdfast ls``: many locks in a table."""

from __future__ import annotations

import argparse
import json
import os
import sys

from holdfast.cli.options import Commands, add_json, add_url, url_of
from holdfast.cli.output import DIM, GREEN, YELLOW, clean, duration_text, has_colours, paint, table
from holdfast.core.data import as_dict
from holdfast.core.requests import LockView
from holdfast.sync import Holdfast

DESCRIPTION = """\
List the locks of a store in the order of their keys: who holds them, for how
long, when the lease ends unless it is renewed, and how many wait.
"""

HEADER = ("KEY", "STATE", "OWNER", "HOST:PID", "HELD FOR", "LEASE LEFT", "WAITING", "TOKEN")
STATE, RIGHT, SHRINK = 1, frozenset({4, 5, 6, 7}), (0, 2, 3)
STYLES = {"held": GREEN, "expired": YELLOW, "free": DIM}


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "ls",
        help="list locks",
        usage="holdfast ls [PREFIX] [options]",
        description=DESCRIPTION,
    )
    parser.add_argument("prefix", nargs="?", default="", metavar="PREFIX", help="only keys that begin so")
    parser.add_argument("--owner", metavar="OWNER", help="only locks of this owner")
    parser.add_argument("--type", metavar="TYPE", help="only keys of this type, i.e. beginning with TYPE:")
    parser.add_argument(
        "--state",
        choices=("held", "expired", "free", "all"),
        default="held",
        metavar="STATE",
        help="held (the default), expired, free or all",
    )
    add_json(parser, "write one JSON object a line")
    add_url(parser)
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Print the locks."""
    with Holdfast(url_of(args)) as locks:
        state = None if args.state == "all" else args.state
        views = locks.list(args.prefix, owner=args.owner, type=args.type, state=state)
        if args.json:
            for view in views:
                print(json.dumps(as_json(view)))
            return 0
        _print(list(views), nothing=f"no locks {'' if state is None else f'are {state} '}here")
    return 0


def as_json(view: LockView) -> dict[str, object]:
    """Return a lock as plain data, without the waiters: a list does not have them."""
    data: dict[str, object] = as_dict(view)
    del data["waiters"]
    return data


def _print(views: list[LockView], *, nothing: str) -> None:
    terminal = sys.stdout.isatty()
    if not views:
        if terminal:
            print(nothing)
        return
    width = os.get_terminal_size(sys.stdout.fileno()).columns if terminal else None
    head, *body = table(
        [HEADER, *(_row(view) for view in views)], right=RIGHT, shrink=SHRINK, width=width or None
    )
    colours = has_colours(sys.stdout)
    print(paint("  ".join(head).rstrip(), DIM, colours=colours))
    for view, row in zip(views, body, strict=True):
        row[STATE] = paint(row[STATE], STYLES[view.state], colours=colours)
        print("  ".join(row).rstrip())


def _row(view: LockView) -> tuple[str, ...]:
    waiting = str(view.waiting) if view.waiting else "-"
    if view.holder is None:
        return (clean(view.key), view.state, "-", "-", "-", "-", waiting, str(view.token))
    holder = view.holder
    return (
        clean(view.key),
        view.state,
        clean(holder.owner),
        f"{clean(holder.host)}:{holder.pid}",
        duration_text(holder.held_for),
        duration_text(view.expires_in) if view.state == "held" else "-",
        waiting,
        str(view.token),
    )
