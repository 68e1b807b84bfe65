"""What the commands' options have in common: the parser, the store's URL, durations, asking back."""

from __future__ import annotations

import argparse
import getpass
import os
import re
import socket
import sys
import textwrap
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast import errors
from holdfast.stores import SCHEMES, address_of

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001
else:
    Commands = object

USAGE = errors.CODES[errors.SettingsError][0]

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0}


class Parser(argparse.ArgumentParser):
    """A parser that complains in one line, with our exit code for wrong usage."""

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


def add_url(parser: argparse.ArgumentParser) -> None:
    """Add ``--url``, which may be given before and after the command's name."""
    parser.add_argument(
        "--url",
        default=argparse.SUPPRESS,
        metavar="URL",
        help="the store, e.g. sqlite:////var/lib/app/locks.db or postgresql://host/database"
        " (default: $HOLDFAST_URL, or a file of yours)",
    )
    parser.add_argument(
        "--wait-for-store",
        type=duration,
        default=argparse.SUPPRESS,
        metavar="S",
        help="how long to wait for a store that is not ready yet (default: 0)",
    )


def add_json(parser: argparse.ArgumentParser, text: str) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help=text)


def add_by(parser: argparse.ArgumentParser) -> None:
    """Add ``--by``, for what goes into the history."""
    parser.add_argument("--by", metavar="NAME", help="who does it (default: you@this-host)")


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


def confirm(question: str, *, yes: bool) -> bool:
    """Ask the person at the terminal, unless *yes*. Without a terminal there is nobody to ask."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise errors.SettingsError("there is no terminal to ask at: confirm with --yes")
    print(_wrap(f"{question} [y/N]"), end=" ", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _wrap(text: str) -> str:
    width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
    lines = (
        textwrap.wrap(line, max(width - 1, 20), break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    )
    return "\n".join(part for parts in lines for part in parts)
