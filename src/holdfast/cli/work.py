"""``holdfast work``: what is to be done, who does it, and what became of it."""

from __future__ import annotations

import argparse
import json

from holdfast import errors
from holdfast.cli import workview
from holdfast.cli.asking import Asking
from holdfast.cli.options import Commands, add_json, add_url, confirm, duration, me, patience
from holdfast.cli.output import count, duration_text, say
from holdfast.cli.target import existing, is_default, is_missing, target
from holdfast.core import keys
from holdfast.core.cluster import (
    LARGEST_DATA,
    MOST_OFFERED,
    WORK_STATES,
    Forget,
    InspectWork,
    Offer,
    OfferedWork,
    WorkView,
)
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
STATES = ("open", *WORK_STATES, "all")
SHOWN = 100
MOST_AT_ONCE = 256 * 1024  # bytes of data in one offer: a server takes only so much
NOTHING = REFUSED = 1

_ONLY_FOR = {
    "state": ("list",),
    "instance": ("list",),
    "limit": ("list", "show"),
    "data": ("offer", "retry"),
    "max_tries": ("offer", "retry"),
    "delay": ("offer", "retry"),
    "yes": ("forget",),
}


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "work",
        help="look at work, offer it, retry or forget it",
        usage="holdfast work [list|show|offer|retry|forget] [KEY ...] [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument(
        "action", nargs="?", choices=ACTIONS, default="list", metavar="ACTION", help=", ".join(ACTIONS)
    )
    parser.add_argument("keys", nargs="*", metavar="KEY", help="of the work; for list, how it begins")
    parser.rest = "keys"  # type: ignore[attr-defined]
    parser.add_argument(
        "--state",
        choices=STATES,
        metavar="STATE",
        help="list: open (the default: all but completed), offered, assigned, completed, failed or all",
    )
    parser.add_argument(
        "--instance", metavar="NAME|ID", help="list: only what this instance has, or had last"
    )
    parser.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help=f"list: how many (default: {SHOWN}; with --json all); show: how many events (default: 20)",
    )
    parser.add_argument("--data", metavar="JSON", help="offer, retry: what whoever does it is told")
    parser.add_argument(
        "--max-tries",
        type=int,
        metavar="N",
        help="offer, retry: after so many it has failed for good",
    )
    parser.add_argument(
        "--delay", type=duration, metavar="S", help="offer, retry: not to be claimed before that (default: 0)"
    )
    parser.add_argument("--yes", action="store_true", help="forget: do not ask; needed without a terminal")
    add_json(parser, "write one JSON object a line")
    add_url(parser)
    parser.set_defaults(call=call)


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
    if args.action == "show":
        return _show(args)
    return {"offer": _offer, "retry": _retry, "forget": _forget}[args.action](args)


def _list(args: argparse.Namespace) -> int:
    if len(args.keys) > 1:
        raise errors.SettingsError("'holdfast work list' takes one prefix")
    prefix = args.keys[0] if args.keys else ""
    url = target(args) if is_default(args) else existing(args)
    state = args.state or "open"
    if is_missing(url):  # the user's own file, which the first lock makes
        if not args.json:
            workview.print_nothing(url, such=state, prefix=prefix)
        return 0
    with Asking(url, patience(args)) as asking:
        works = workview.find(asking, prefix, state, args.instance)
        if args.json:
            workview.print_json(works, args.limit)
        else:
            workview.print_list(asking, works, url, args.limit or SHOWN, such=state, prefix=prefix)
    return 0


def _show(args: argparse.Namespace) -> int:
    key = keys.validate(args.keys[0])
    with Asking(existing(args), patience(args)) as asking:
        work = asking.ask(InspectWork(key))
        if work is None:
            return _unknown(key)
        events = asking.ask(History(key, args.limit or 20))
        if args.json:
            print(json.dumps({**as_dict(work), "history": [as_dict(event) for event in events]}))
        else:
            workview.print_one(asking, work, events)
    return 0


def _unknown(key: str) -> int:
    say(f"there is no work {key!r}: it was never offered, or ended long ago")
    return NOTHING


def _offer(args: argparse.Namespace) -> int:
    data = "null" if args.data is None else _json(args.data)
    tries, delay = _tries(args.max_tries), args.delay or 0.0
    works = [OfferedWork(keys.validate(key), data, tries or 0, delay) for key in dict.fromkeys(args.keys)]
    with Asking(target(args), patience(args)) as asking:
        for work, state, new in _offered(asking, works, again=False):
            if args.json:
                print(json.dumps({"key": work.key, "state": state, "new": new}))
            elif new:
                print(f"{work.key!r} is offered{_when(delay)}")
            else:
                ended = state in ("completed", "failed")
                hint = "; 'holdfast work retry' offers it anew" if ended else ""
                print(f"{work.key!r} {_is(state)} already{hint}")
    return 0


def _retry(args: argparse.Namespace) -> int:
    """Offer anew; 1 if something could not be."""
    data = None if args.data is None else _json(args.data)
    tries, delay = _tries(args.max_tries), args.delay or 0.0
    code = 0
    with Asking(existing(args), patience(args)) as asking:
        known: list[WorkView] = []
        for key in dict.fromkeys(args.keys):
            if key.endswith("*"):
                known += workview.find(asking, key[:-1], "failed", None)
            elif work := asking.ask(InspectWork(keys.validate(key))):
                known.append(work)
            else:
                code = _unknown(key)
        works = [
            OfferedWork(
                work.key,
                work.data if data is None else data,
                work.max_tries if tries is None else tries,
                delay,
            )
            for work in {work.key: work for work in known}.values()
        ]
        for each, state, new in _offered(asking, works, again=True):
            if args.json:
                print(json.dumps({"key": each.key, "state": state, "new": new}))
            elif new:
                print(f"{each.key!r} is offered anew{_when(delay)}")
            else:
                say(f"{each.key!r} {_is(state)}, and not over: nothing was done")
            code = code if new else REFUSED
    if not works and not code:
        say("none such has failed")
    return code


def _offered(asking: Asking, works: list[OfferedWork], *, again: bool) -> list[tuple[OfferedWork, str, bool]]:
    found: list[tuple[OfferedWork, str, bool]] = []
    most = max(1, min(MOST_OFFERED, MOST_AT_ONCE // max((len(work.data) for work in works), default=1)))
    for first in range(0, len(works), most):
        some = works[first : first + most]
        offered = asking.ask(Offer(tuple(some), again), twice=not again)
        found += zip(some, offered.states, offered.new, strict=True)
    return found


def _forget(args: argparse.Namespace) -> int:
    wanted = [keys.validate(key) for key in dict.fromkeys(args.keys)]
    with Asking(existing(args), patience(args)) as asking:
        which = repr(wanted[0]) if len(wanted) == 1 else f"{count(len(wanted), 'piece')} of work"
        if not confirm(
            f"forget {which}, with data and result? Then it can be offered as if it had never been.",
            yes=args.yes,
        ):
            say("nothing was done")
            return REFUSED
        code = 0
        for key in wanted:
            forgotten = asking.ask(Forget(key, me()), twice=False)
            if forgotten is None:
                code = _unknown(key)
            elif isinstance(forgotten, Busy):
                left = duration_text(forgotten.expires_in)
                say(
                    f"{key!r} is assigned to {forgotten.holder} for another {left}:"
                    " wait, or 'holdfast break' its lock"
                )
                code = errors.CODES[errors.LockTimeout][0]
            elif args.json:
                print(json.dumps(as_dict(forgotten.work)))
            else:
                print(f"{key!r}, which {_was(forgotten.work.state)}, is forgotten")
    return code


def _json(text: str) -> str:
    try:
        written = json.dumps(json.loads(text), allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise errors.SettingsError(f"--data is no JSON: {error}; a text needs its own quotes") from error
    if len(written) > LARGEST_DATA:
        raise errors.SettingsError(f"--data has {len(written)} bytes as JSON; {LARGEST_DATA} are allowed")
    return written


def _tries(number: int | None) -> int | None:
    if number is not None and number < 0:
        raise errors.SettingsError(f"--max-tries is {number}; it is 1 or more, or 0 for no limit")
    return number


def _when(delay: float) -> str:
    return f", to be claimed in {duration_text(delay)}" if delay else ""


def _is(state: str) -> str:
    return f"is {state}" if state in ("offered", "assigned") else f"has {state}"


def _was(state: str) -> str:
    return f"was {state}" if state in ("offered", "assigned") else f"had {state}"
