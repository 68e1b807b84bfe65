"""``holdfast ls``: many locks in a table."""

from __future__ import annotations

import argparse
import json
import os
import sys

from holdfast.cli.options import Commands, add_json, add_url
from holdfast.cli.output import (
    DIM,
    GAP,
    GREEN,
    YELLOW,
    clean,
    duration_text,
    has_colours,
    paint,
    say,
    table,
    width_of,
)
from holdfast.cli.target import existing, is_default, is_missing, shown, target
from holdfast.core.data import as_dict
from holdfast.core.requests import LockView
from holdfast.sync import Holdfast

DESCRIPTION = """\
List the locks of a store in the order of their keys: who holds them, for how
long, when the lease ends unless it is renewed, and how many wait. A lock that
several may hold together is marked, and the first of them is shown.
"""

HEADER = ("KEY", "STATE", "OWNER", "HOST:PID", "HELD FOR", "LEASE LEFT", "WAITING", "TOKEN")
RIGHT = frozenset({"HELD FOR", "LEASE LEFT", "WAITING", "TOKEN"})
SHRINK = {"KEY": 12, "OWNER": 8, "HOST:PID": 8}  # may be cut down to this: a part of a token says nothing
DROP = ("HOST:PID", "OWNER", "TOKEN", "WAITING", "HELD FOR", "LEASE LEFT")  # in a narrow terminal, in order
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
    url = target(args) if is_default(args) else existing(args)
    if is_missing(url):  # the user's own file, which the first lock makes
        _print_nothing(args, url)
        return 0
    with Holdfast(url) as locks:
        state = None if args.state == "all" else args.state
        views = locks.list(args.prefix, owner=args.owner, type=args.type, state=state)
        if args.json:
            for view in views:
                print(json.dumps(as_json(view)))
        elif found := list(views):
            _print(found)
        else:
            _print_nothing(args, url)
    return 0


def as_json(view: LockView) -> dict[str, object]:
    """Return a lock as plain data, without waiters and all holders: a list does not have them."""
    data: dict[str, object] = as_dict(view)
    del data["waiters"], data["holders"]
    return data


def _print_nothing(args: argparse.Namespace, url: str) -> None:
    """Say where we looked: most often it is the wrong store. To stderr, for stdout may be counted."""
    if args.json:
        return
    such = "such " if args.prefix or args.owner or args.type else ""
    say(f"no {such}locks are {'' if args.state == 'all' else f'{args.state} '}in {shown(url)}")


def _print(views: list[LockView]) -> None:
    width = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    head, *body = fitted([_row(view) for view in views], width or None)
    colours = has_colours(sys.stdout)
    print(paint("  ".join(head).rstrip(), DIM, colours=colours))
    for view, row in zip(views, body, strict=True):
        row[1] = paint(row[1], STYLES[view.state], colours=colours)
        print("  ".join(row).rstrip())


def fitted(rows: list[tuple[str, ...]], width: int | None) -> list[list[str]]:
    """Return header and rows with as many columns as fit, at least key and state."""
    columns = dict(zip(HEADER, zip(HEADER, *rows, strict=True), strict=True))
    shrink = SHRINK
    for name in DROP:
        needed = [min(max(map(width_of, cells)), shrink.get(of, 1000)) for of, cells in columns.items()]
        if width is None or sum(needed) + GAP * (len(needed) - 1) <= width:
            break
        del columns[name]
    else:
        shrink = {"KEY": 1}
    names = list(columns)
    return table(
        list(zip(*columns.values(), strict=True)),
        right=frozenset(names.index(name) for name in RIGHT if name in columns),
        shrink={names.index(name): least for name, least in shrink.items() if name in columns},
        width=width,
    )


def state_text(view: LockView) -> str:
    """Return the state of a lock, and how it is held if that is not as ever."""
    if view.state == "held" and not view.holds:  # it ran out, and had a lock-delay
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
