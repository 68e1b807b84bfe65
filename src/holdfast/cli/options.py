"""What the command lines have in common: the parser, the store's URL, durations, asking back.

Those of `GUARDING` have another one in them: what follows ``--`` is that command's business alone.
"""

from __future__ import annotations

import argparse
import getpass
import os
import re
import shlex
import socket
import sys
import textwrap
from typing import Any, NoReturn

from holdfast import errors
from holdfast.stores import SCHEMES, address_of

GUARDING = ("run", "every")
USAGE = errors.CODES[errors.SettingsError][0]

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0}


class Unsuccessful(Exception):
    """Ends a command that could not do what it was asked for: why, and the exit code."""

    def __init__(self, why: str, code: int = 1) -> None:
        super().__init__(why)
        self.code = code


class Parser(argparse.ArgumentParser):
    """A parser that complains in one line, with our exit code for wrong usage."""

    about = ""  # what the list of commands says of it
    rest = ""  # what may stand anywhere among the options: by itself argparse looks for it in one place only

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Complain about unknown arguments here, where it is known which command they were given to."""
        found, unknown = super().parse_known_args(args, namespace)
        if self.rest and not any(word.startswith("-") for word in unknown):
            setattr(found, self.rest, [*getattr(found, self.rest), *unknown])
            unknown = []
        if any(is_url(word) for word in unknown):
            self.error(f"the store is named with --url: {self.prog} --url URL")
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and leave."""
        self.exit(USAGE, f"holdfast: {message}; try '{self.prog} --help'\n")


def add(parser: Any, name: str, text: str, **options: Any) -> None:
    """Add an option or a word, to a parser or a group: ``--limit N``, ``key KEY``, or a switch ``--all``.

    S stands for a duration, N for a whole number.
    """
    name, _, metavar = name.partition(" ")
    if metavar:
        options = {"metavar": metavar, "type": {"S": duration, "N": int}.get(metavar)} | options
    else:
        options["action"] = "store_true"
    parser.add_argument(name, help=text, **options)


def add_store(parser: argparse.ArgumentParser, *, json: str = "") -> None:
    """Add what names the store, before or after the command's name; and ``--json``, if that has a text."""
    if json:
        add(parser, "--json", json)
    url = (
        "the store, e.g. sqlite:////var/lib/app/locks.db or postgresql://host/database"
        " (default: $HOLDFAST_URL, or a file of yours)"
    )
    add(parser, "--url URL", url, default=argparse.SUPPRESS)
    wait = "how long to wait for a store that is not ready yet (default: 0)"
    add(parser, "--wait-for-store S", wait, default=argparse.SUPPRESS)


def add_by(parser: argparse.ArgumentParser) -> None:
    """Add ``--by``, for what goes into the history."""
    add(parser, "--by NAME", "who does it (default: you@this-host)")


def add_grace(parser: argparse.ArgumentParser) -> None:
    """Add ``--grace``, for a command under a lease."""
    text = (
        "how long the command has between SIGTERM and SIGKILL, at most half the ttl"
        " (default: a quarter of the ttl, at most 5; 0: SIGKILL at once)"
    )
    add(parser, "--grace S", text)


def me() -> str:
    """Return who does it, if nobody is named."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no name for this uid, as in many containers
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def url_of(args: argparse.Namespace) -> str | None:
    """Return the URL that was given; None for the default."""
    return address_of(getattr(args, "url", None))  # type: ignore[no-any-return]


def patience(args: argparse.Namespace) -> float:
    """Return how long to wait for a store that is not ready yet."""
    return getattr(args, "wait_for_store", 0.0)


def is_url(text: str) -> bool:
    """Tell whether *text* looks like the url of a store. There are keys that do; but rarely."""
    scheme, mark, _ = text.partition("://")
    return bool(mark) and scheme.lower().partition("+")[0] in SCHEMES


def duration(text: str) -> float:
    """Read seconds: ``2``, ``0.5``, ``500ms``, ``30s``, ``5m``, ``1h``."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 2, 0.5, 30s, 5m or 1h")
    return float(match[1]) * _UNITS[match[2]]


def is_duration(text: str) -> bool:
    """Tell whether *text* can be read by `duration`."""
    return _DURATION.fullmatch(text) is not None


def confirm(question: str, *, yes: bool) -> None:
    """Ask the person at the terminal, unless *yes*, and end the command if the answer is not yes.

    Without a terminal there is nobody to ask.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise errors.SettingsError("there is no terminal to ask at: confirm with --yes")
    print(_wrap(f"{question} [y/N]"), end=" ", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Unsuccessful("nothing was done")


def _wrap(text: str) -> str:
    width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
    lines = (
        textwrap.wrap(line, max(width - 1, 20), break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    )
    return "\n".join(part for parts in lines for part in parts)


def split(argv: list[str], parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """Split the arguments of ``run`` and ``every`` at ``--``."""
    values = with_value(parser)
    words: list[str] = []  # neither options nor their values: run, then the key
    option = ""
    for at, word in enumerate(argv):
        if word == "--" and words:
            return argv[:at], argv[at + 1 :]
        if option in values:
            option = ""
        elif word.startswith("-") and word != "-":
            option = word
        else:
            option = ""
            words.append(word)
        if len(words) == 1 and word is words[0]:
            if word not in GUARDING:
                break
            values |= with_value(commands_of(parser)[word])
        if len(words) > 2:
            raise errors.SettingsError(_meant(argv, at))
    return argv, []


def _meant(argv: list[str], at: int) -> str:
    if "every" in argv[:at] and "--" in argv[at:]:
        return "quote the schedule: holdfast every '*/5 * * * *' -- COMMAND"
    return f"put -- before the command: {shlex.join(['holdfast', *argv[:at], '--', *argv[at:]])}"


def with_value(parser: argparse.ArgumentParser) -> frozenset[str]:
    """Return the options of a command that are followed by a value."""
    return frozenset(
        name
        for action in parser._actions  # noqa: SLF001 - there is no other way to ask
        if action.option_strings and action.nargs != 0
        for name in action.option_strings
    )


def commands_of(parser: argparse.ArgumentParser) -> dict[str, Parser]:
    """Return the commands of a parser, by their names."""
    for action in parser._actions:  # noqa: SLF001 - as above
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}
