"""``holdfast work``: what is to be done, who does it, and what became of it."""

from __future__ import annotations

import argparse
import json
from itertools import islice

from holdfast import errors
from holdfast.cli import work_view
from holdfast.cli.connection import Connection
from holdfast.cli.options import add, add_store, confirm, me, patience
from holdfast.cli.output import count, duration_text, print_json, say, tell
from holdfast.cli.target import existing, looked_at, or_empty, target
from holdfast.core import cluster as c
from holdfast.core import keys
from holdfast.core.data import as_dict
from holdfast.core.requests import Busy, History

DESCRIPTION = """\
Look at the work of a cluster, offer some, and put right what went wrong.

  list [PREFIX]   what there is, and how much of each type (the default)
  show KEY        all about one: state, tries, who has it, data, history
  offer KEY ...   have it done by whichever instance claims it
  retry KEY ...   offer anew what has failed or completed, with its data;
                  PREFIX* is all that have failed and begin so
  forget KEY ...  as if it had never been offered; not while it is assigned

Work is a key with something to be done for it, by one instance at a time: who
has it assigned holds the lock of that key. Its type is the key up to the first
colon; instances claim by type. To take it away from who has it, break its lock:
'holdfast break KEY'.

To offer what is known already changes nothing, so it is safe to do it twice.
"""

EPILOG = """\
examples:
  holdfast work                               what is open, by type
  holdfast work list workflow: --state failed
  holdfast work offer report:2026-11 --data '{"pages": 4}' --max-tries 3
  holdfast work retry 'workflow:*'            all of them that have failed
"""

ACTIONS = ("list", "show", "offer", "retry", "forget")
UNDONE = ("offered", "assigned")
STATES = ("open", *c.WORK_STATES, "all")
SHOWN = 100
MOST_AT_ONCE = 256 * 1024  # bytes of data in one offer: a server takes only so much
NOT_DONE = 1

_ONLY_FOR = {
    "state": ("list",),
    "instance": ("list",),
    "limit": ("list", "show"),
    "data": ("offer", "retry"),
    "max_tries": ("offer", "retry"),
    "delay": ("offer", "retry"),
    "yes": ("forget",),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    add(parser, "action ACTION", ", ".join(ACTIONS), nargs="?", choices=ACTIONS, default="list")
    add(parser, "keys KEY", "of the work; for list, how it begins", nargs="*")
    parser.rest = "keys"  # type: ignore[attr-defined]
    states = "list: open (the default: all but completed), offered, assigned, completed, failed or all"
    add(parser, "--state STATE", states, choices=STATES)
    add(parser, "--instance NAME|ID", "list: only what this instance has, or had last")
    limit = f"list: how many (default: {SHOWN}; with --json all); show: how many events (default: 20)"
    add(parser, "--limit N", limit)
    add(parser, "--data JSON", "offer, retry: what whoever does it is told")
    add(parser, "--max-tries N", "offer, retry: after so many it has failed for good")
    add(parser, "--delay S", "offer, retry: not to be claimed before that (default: 0)")
    add(parser, "--yes", "forget: do not ask; needed without a terminal")
    add_store(parser, json="write one JSON object a line")


def call(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    for name, actions in _ONLY_FOR.items():
        if getattr(args, name) not in (None, False) and args.action not in actions:
            option = f"--{name.replace('_', '-')}"
            raise errors.SettingsError(f"{option} is for 'holdfast work {' or '.join(actions)}'")
    if args.action == "list":
        return _list(args)
    if not args.keys or (args.action == "show" and len(args.keys) > 1):
        raise errors.SettingsError(f"which? Write 'holdfast work {args.action} KEY'")
    return {"show": _show, "offer": _offer, "retry": _retry, "forget": _forget}[args.action](args)


def _list(args: argparse.Namespace) -> int:
    if len(args.keys) > 1:
        raise errors.SettingsError("'holdfast work list' takes one prefix")
    prefix = args.keys[0] if args.keys else ""
    url = looked_at(args)
    state = args.state or "open"
    with Connection(or_empty(url), patience(args)) as connection:
        works = work_view.find(connection, prefix, state, args.instance)
        if args.json:
            print_json(islice(works, args.limit))
        else:
            work_view.print_list(connection, works, url, args.limit or SHOWN, such=state, prefix=prefix)
    return 0


def _show(args: argparse.Namespace) -> int:
    key = keys.validate(args.keys[0])
    with Connection(existing(args), patience(args)) as connection:
        work = connection.ask(c.InspectWork(key))
        if work is None:
            return _unknown(key)
        events = connection.ask(History(key, args.limit or 20))
        if args.json:
            print(json.dumps({**as_dict(work), "history": [as_dict(event) for event in events]}))
        else:
            work_view.print_one(connection, work, events)
    return 0


def _unknown(key: str) -> int:
    say(f"there is no work {key!r}: it was never offered, or ended long ago")
    return NOT_DONE


def _offer(args: argparse.Namespace) -> int:
    data = "null" if args.data is None else _json(args.data)
    tries, delay = _tries(args.max_tries), args.delay or 0.0
    works = [c.OfferedWork(keys.validate(key), data, tries or 0, delay) for key in dict.fromkeys(args.keys)]
    with Connection(target(args), patience(args)) as connection:
        for work, state, new in _offered(connection, works, again=False):
            hint = "; 'holdfast work retry' offers it anew" if state not in UNDONE else ""
            text = f"is offered{_when(delay)}" if new else f"{_is(state)} already{hint}"
            tell(args, {"key": work.key, "state": state, "new": new}, f"{work.key!r} {text}")
    return 0


def _retry(args: argparse.Namespace) -> int:
    """Offer anew; 1 if something could not be."""
    data = None if args.data is None else _json(args.data)
    tries, delay = _tries(args.max_tries), args.delay or 0.0
    code = 0
    with Connection(existing(args), patience(args)) as connection:
        known: list[c.WorkView] = []
        for key in dict.fromkeys(args.keys):
            if key.endswith("*"):
                known += work_view.find(connection, key[:-1], "failed", None)
            elif work := connection.ask(c.InspectWork(keys.validate(key))):
                known.append(work)
            else:
                code = _unknown(key)
        works = []
        for work in {work.key: work for work in known}.values():
            most = work.max_tries if tries is None else tries
            works.append(c.OfferedWork(work.key, work.data if data is None else data, most, delay))
        for each, state, new in _offered(connection, works, again=True):
            if args.json:
                print(json.dumps({"key": each.key, "state": state, "new": new}))
            elif new:
                print(f"{each.key!r} is offered anew{_when(delay)}")
            else:
                say(f"{each.key!r} {_is(state)}, and not over: nothing was done")
            code = code if new else NOT_DONE
    if not works and not code:
        say("none such has failed")
    return code


def _offered(
    connection: Connection, works: list[c.OfferedWork], *, again: bool
) -> list[tuple[c.OfferedWork, str, bool]]:
    found: list[tuple[c.OfferedWork, str, bool]] = []
    most = max(1, min(c.MOST_OFFERED, MOST_AT_ONCE // max((len(work.data) for work in works), default=1)))
    for first in range(0, len(works), most):
        some = works[first : first + most]
        offered = connection.ask(c.Offer(tuple(some), again), twice=not again)
        found += zip(some, offered.states, offered.new, strict=True)
    return found


def _forget(args: argparse.Namespace) -> int:
    wanted = [keys.validate(key) for key in dict.fromkeys(args.keys)]
    with Connection(existing(args), patience(args)) as connection:
        which = repr(wanted[0]) if len(wanted) == 1 else f"{count(len(wanted), 'piece')} of work"
        question = f"forget {which}, with data and result? Then it can be offered as if it had never been."
        confirm(question, yes=args.yes)
        code = 0
        for key in wanted:
            forgotten = connection.ask(c.Forget(key, me()), twice=False)
            if forgotten is None:
                code = _unknown(key)
            elif isinstance(forgotten, Busy):
                who = f"{forgotten.holder} for another {duration_text(forgotten.expires_in)}"
                say(f"{key!r} is assigned to {who}: wait, or 'holdfast break' its lock")
                code = errors.CODES[errors.LockTimeout][0]
            else:
                state = forgotten.work.state
                text = f"{key!r}, which {'was' if state in UNDONE else 'had'} {state}, is forgotten"
                tell(args, as_dict(forgotten.work), text)
    return code


def _json(text: str) -> str:
    try:
        written = json.dumps(json.loads(text), allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise errors.SettingsError(f"--data is no JSON: {error}; a text needs its own quotes") from error
    if len(written) > c.LARGEST_DATA:
        raise errors.SettingsError(f"--data has {len(written)} bytes as JSON; {c.LARGEST_DATA} are allowed")
    return written


def _tries(number: int | None) -> int | None:
    if number is not None and number < 0:
        raise errors.SettingsError(f"--max-tries is {number}; it is 1 or more, or 0 for no limit")
    return number


def _when(delay: float) -> str:
    return f", to be claimed in {duration_text(delay)}" if delay else ""


def _is(state: str) -> str:
    return f"is {state}" if state in UNDONE else f"has {state}"
