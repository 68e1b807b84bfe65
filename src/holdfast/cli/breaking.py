"""``holdfast break``: take a lock away from its holder."""

from __future__ import annotations

import argparse
import getpass
import json
import socket

from holdfast import errors
from holdfast.cli.options import Commands, add_json, add_url, confirm
from holdfast.cli.output import clean, duration_text, say
from holdfast.cli.target import existing
from holdfast.core import keys
from holdfast.core.data import as_dict
from holdfast.core.requests import LockView
from holdfast.sync import Holdfast

DESCRIPTION = """\
Take a lock away from its holder and give it to the next in the queue.

The holder is told that its lease is lost, and by whom and why; the history
keeps it. But it may be in the middle of its work and notice late: only what is
fenced with the token is safe from it. Ask whether the holder is really gone
before you break its lock.
"""

REFUSED = 1


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "break",
        help="take a lock away from its holder",
        usage="holdfast break KEY --reason TEXT [options]",
        description=DESCRIPTION,
    )
    parser.add_argument("key", metavar="KEY", help="the name of the lock")
    parser.add_argument(
        "--reason", required=True, metavar="TEXT", help="why; the holder and the history get it"
    )
    parser.add_argument("--by", metavar="NAME", help="who does it (default: you@this-host)")
    parser.add_argument(
        "--token",
        type=int,
        metavar="N",
        help="break only the lease with this token, not one that came after it",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")
    add_json(parser, "write the outcome as one JSON object")
    add_url(parser)
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Break the lock, after asking; say who lost it and who has it now."""
    key = keys.validate(args.key)
    if not args.reason.strip():
        raise errors.SettingsError("the reason is empty; somebody will want to know it")
    token = args.token
    with Holdfast(existing(args)) as locks:
        if not args.yes:
            view = locks.inspect(key)
            if view is None or view.holder is None:
                raise errors.NotHeld(key, "it is free")
            if token is None:
                token = view.token  # what the person sees is what is broken, and nobody after it
            if not confirm(f"{_explain(view)}\nbreak it?", yes=False):
                say("nothing was done")
                return REFUSED
        broken = locks.break_lock(key, reason=args.reason, by=args.by or _me(), token=token)
    if broken is None:
        detail = "it is free" if token is None else f"the lease with token {token} is over"
        raise errors.NotHeld(key, detail)
    if args.json:
        print(json.dumps({"key": key, **as_dict(broken)}))
        return 0
    loser = broken.holder
    now = f"{clean(broken.next)} has it now" if broken.next else "it is free now"
    print(
        f"{clean(loser.owner)} (host {clean(loser.host)}, pid {loser.pid}) has lost {key!r} after"
        f" {duration_text(loser.held_for)} (token {loser.token}); {now}"
    )
    return 0


def _explain(view: LockView) -> str:
    holder = view.holder
    assert holder is not None
    lease = f"its lease ends in {duration_text(view.expires_in)} unless it is renewed"
    waiting = "nobody waits for it"
    if view.waiting:
        waiting = "1 waits for it, and gets it"
    if view.waiting > 1:
        waiting = f"{view.waiting} wait for it, and the first of them gets it"
    return (
        f"{view.key!r} is held by {clean(str(holder))}, token {view.token};"
        f" {lease if view.state == 'held' else 'its lease is over'}; {waiting}.\n"
        "The holder may still be at work: only what is fenced with the token is safe from it."
    )


def _me() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no name for this uid, as in many containers
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
