"""``holdfast break``: take a lock away from its holder."""

from __future__ import annotations

import argparse

from holdfast import errors
from holdfast.cli.options import add, add_by, add_store, confirm, me, patience
from holdfast.cli.output import clean, duration_text, holders_of, tell
from holdfast.cli.target import existing
from holdfast.client.sync.client import Holdfast
from holdfast.core import keys
from holdfast.core.data import as_dict
from holdfast.core.family import whereabouts
from holdfast.core.requests import Broken, LockView

DESCRIPTION = """\
Take a lock away from its holder and give it to the next in the queue. If
several hold it together, shared or as a semaphore, it is taken away from all of
them; with --token from one. A lock that is only shut (at least, lock-delay) is
opened, and the result of an operation that is kept is thrown away.

The holder is told that its lease is lost, and by whom and why; the history
keeps it. But it may be in the middle of its work and notice late: only what is
fenced with the token is safe from it. Ask whether the holder is really gone
before you break its lock.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    add(parser, "key KEY", "the name of the lock")
    add(parser, "--reason TEXT", "why; the holder and the history get it", required=True)
    add_by(parser)
    add(parser, "--token N", "break only the lease with this token, not one that came after it")
    add(parser, "--yes", "do not ask; needed where there is no terminal")
    add_store(parser, json="write one JSON object for each lease that was broken")


def call(args: argparse.Namespace) -> None:
    """Break the lock, after asking; say who lost it and who has it now."""
    key = keys.validate(args.key)
    if not args.reason.strip():
        raise errors.SettingsError("the reason is empty; somebody will want to know it")
    with Holdfast(existing(args), wait_for_store=patience(args)) as locks:
        newest, tokens = 0, [args.token]
        if args.token is None or not args.yes:
            view = locks.inspect(key)
            if view is None or (view.holder is None and view.kept is None):
                raise errors.NotHeld(key, "it is free")
            if args.token is None:  # what the person sees is what is broken, and nobody after it
                newest = view.token
                shown = (*holders_of(view), *filter(None, [view.kept]))
                tokens = list(dict.fromkeys(each.token for each in shown))
            confirm(f"{_explain(view)}\n{_question(view)}?", yes=args.yes)
        answers = []
        for token in tokens:
            answers.append(locks.break_lock(key, reason=args.reason, by=args.by or me(), token=token))
            if token == tokens[-1] and (view := locks.inspect(key)):  # of many, only the first are shown
                more = (holder.token for holder in view.holders)
                tokens += [each for each in more if each <= newest and each not in tokens]
        left = locks.inspect(key)
    if not any(answers):
        which = f"the lease with token {tokens[0]} is" if len(tokens) == 1 else "all those leases are"
        raise errors.NotHeld(key, f"{which} over")
    for broken in filter(None, answers):
        is_free = left is None or left.state != "held"
        tell(args, {"key": key, **as_dict(broken)}, _told(key, broken, is_free=is_free))


def _question(view: LockView) -> str:
    if view.holder is None:
        return "throw it away"
    return "break it open" if view.holder.gone else "break it"


def _told(key: str, broken: Broken, *, is_free: bool) -> str:
    loser = broken.holder
    if loser.gone:
        next_one = f"; {clean(broken.next)} has it now" if broken.next else ""
        return f"what was left of the lease with token {loser.token} is gone: {key!r} is open{next_one}"
    now = "it is free now" if is_free else "others have it"
    if broken.next:
        now = f"{clean(broken.next)} has it now"
    return (
        f"{clean(loser.owner)} ({whereabouts(clean(loser.host), loser.pid)}) has lost {key!r} after"
        f" {duration_text(loser.held_for)} (token {loser.token}); {now}"
    )


def _explain(view: LockView) -> str:
    kept = ""
    if view.kept is not None:
        kept = f"The result of {view.key!r} is kept for another {duration_text(view.kept_for)};"
        kept += f" it was done by {clean(str(view.kept))}."
    if view.holder is None:
        return kept
    if view.holder.gone:
        shut = f"{view.key!r} is shut for another {duration_text(view.expires_in)}; the last to have it was"
        return f"{kept}\n{shut} {clean(str(view.holder))}.".lstrip()
    holders = holders_of(view)
    held = "; ".join(f"{clean(str(holder))}, token {holder.token}" for holder in holders)
    lease = f"its lease ends in {duration_text(view.expires_in)} unless it is renewed"
    if len(holders) > 1:
        lease = "their leases end by themselves unless they are renewed"
    waiting = f"{view.waiting} wait for it, and the first of them gets it"
    if view.waiting < 2:
        waiting = "1 waits for it, and gets it" if view.waiting else "nobody waits for it"
    return (
        f"{kept}\n{view.key!r} is held by {held};".lstrip()
        + f" {lease if view.state == 'held' else 'its lease is over'}; {waiting}.\n"
        f"{'The holder' if len(holders) == 1 else 'A holder'} may still be at work:"
        " only what is fenced with the token is safe from it."
    )
