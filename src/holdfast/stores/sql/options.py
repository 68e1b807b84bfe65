"""Options in a database server's url: ours are taken out, the rest is the driver's business."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from holdfast.core.data import data
from holdfast.errors import SettingsError
from holdfast.stores import address_of
from holdfast.stores.base import yes_or_no

_NAME = re.compile(r"^[a-z_][a-z0-9_]{0,39}$")


@data
class ServerOptions:
    """How to use a server. All can be given in the url, after ``?``."""

    pool_size: int = 8  # connections at most, and one to listen
    request_timeout: float = 10.0  # how long an answer may take before the connection is given up
    prefix: str = "holdfast_"  # of the tables' names
    schema: str | None = None  # in PostgreSQL's sense: where the tables are; by default, the search path's
    listen: str | None = None  # another url to listen at, past a pooler
    signals: bool = True
    # On: a pooler in transaction mode is in between, so nothing may be kept in a session. Off: whatever is in
    # between keeps sessions apart. None: find out.
    pooler: bool | None = None
    apply_schema: bool = False  # create or upgrade the tables when connecting


def split_url(url: str) -> tuple[str, ServerOptions]:
    """Return the url without our options, and those.

    The rest stays letter by letter: a driver may read it by rules of its own, as libpq does with several
    hosts, with none, and with ``+``.
    """
    address, _, query = url.partition("?")
    given = [(part.partition("=")[0], part) for part in query.split("&") if part]
    ours = {name: unquote(part.partition("=")[2]) for name, part in given if name in _READ}
    rest = "&".join(part for name, part in given if name not in ours)
    if [name for name, _ in given].count("host") > 1:  # libpq would take the last one, and say nothing
        raise SettingsError(
            "the url has several options host=; name all hosts before the database, as libpq does:"
            " postgresql://app@one:5432,two:5432/app"
        )
    try:
        options = ServerOptions(**{name: read(ours[name]) for name, read in _READ.items() if name in ours})
    except (ValueError, KeyError) as error:
        raise SettingsError(f"an option in the url is no good: {error}") from error
    return f"{address}?{rest}" if rest else address, options


def _whole(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1000:
        raise ValueError(f"pool_size is {text!r}; it must be a whole number from 1 to 1000")
    return int(text)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(f"request_timeout is {text!r}; it must be a number of seconds")
    return value


def _name(text: str) -> str:
    if not _NAME.match(text):
        raise ValueError(f"{text!r} is no name: use up to 40 lower-case letters, digits and underscores")
    return text


_READ: dict[str, Callable[[str], Any]] = {
    "pool_size": _whole,
    "request_timeout": _seconds,
    "prefix": _name,
    "schema": _name,
    "listen": address_of,
    "signals": yes_or_no,
    "pooler": yes_or_no,
    "apply_schema": yes_or_no,
}
