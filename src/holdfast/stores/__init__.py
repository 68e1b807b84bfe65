"""Where locks live. `open_store` turns a URL into a store; nothing else knows which stores exist."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.errors import SettingsError, StoreMisconfigured

if TYPE_CHECKING:
    from holdfast.stores.base import Store, StoreOptions, Tables

ENTRY_POINTS = "holdfast.stores"

# Imported only when a URL asks for them, so that no driver is loaded in vain.
_BUILT_IN = {
    "http": "holdfast.stores.http",
    "https": "holdfast.stores.http",
    "mariadb": "holdfast.stores.mysql",
    "memory": "holdfast.stores.memory",
    "mysql": "holdfast.stores.mysql",
    "postgresql": "holdfast.stores.postgres",
    "postgres": "holdfast.stores.postgres",
    "sqlite": "holdfast.stores.sqlite",
}
SCHEMES = frozenset(_BUILT_IN)


def default_url() -> str:
    """Return ``$HOLDFAST_URL``, or else a file of this user's, which is created when it is used."""
    from pathlib import Path  # slow to import, and not needed by whoever names a store
    from urllib.parse import quote

    if url := os.environ.get("HOLDFAST_URL"):
        return address_of(url)  # type: ignore[no-any-return]
    if sys.platform == "darwin":
        state = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        state = Path(os.environ.get("LOCALAPPDATA", Path.home()))
    else:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    folder = state / "holdfast"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreMisconfigured(
            f"the default lock file cannot be made in {folder}: {error}; pass a url or set HOLDFAST_URL"
        ) from error
    return f"sqlite:///{quote(str(folder / 'locks.db'))}"


def address_of(source: Any) -> Any:
    """Return *source* as a url in our spelling, if it is an address in SQLAlchemy's, or an engine on a file.

    Whatever else it is, it is returned as it is.
    """
    text = isinstance(source, str)
    if source is None or (text and "+" not in source.partition("://")[0]):
        return source
    from holdfast.stores import addresses  # slow to import, and seldom needed

    if text:
        return addresses.without_driver(source)
    if hasattr(source, "drivername") and hasattr(source, "render_as_string"):
        return addresses.of_parts(source)
    return addresses.of_file(source) if _dialect(source) == "sqlite" else source


def open_store(url: Any, options: StoreOptions) -> Store:
    """Return the store that *url* names, not yet connected.

    Instead of a url it may be a ``psycopg_pool.ConnectionPool`` or an SQLAlchemy engine: then the store's
    connections come from there, but for those to an SQLite file. Third parties add a scheme with an entry
    point in the group ``holdfast.stores`` whose value is a callable ``(url, options) -> Store``.
    """
    url = address_of(url)
    if not isinstance(url, str):
        return _store_from(url, options)
    scheme, colon, _ = url.partition("://")
    if not colon:
        # Shown only if it can be a file's name: what is meant for a database may have a password in it.
        what = repr(url) if "=" not in url and "@" not in url else "what was given"
        raise SettingsError(f"{what} is no url; for a file write 'sqlite:///locks.db'")
    scheme = scheme.lower()
    if module := _BUILT_IN.get(scheme):
        return import_module(module).from_url(f"{scheme}{url[len(scheme) :]}", options)  # type: ignore[no-any-return]
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    for entry in entry_points(group=ENTRY_POINTS, name=scheme):
        return entry.load()(url, options)  # type: ignore[no-any-return]
    known = ", ".join(f"{name}://" for name in sorted(_BUILT_IN))
    # Without the url itself: it may have a password in it.
    there = f"there is no store for {scheme}:// in this release; there are {known}, and plugins'"
    database, plus, driver = scheme.partition("+")
    if plus and database in _BUILT_IN:
        there += f". holdfast connects by a driver of its own, and may not read the url as {driver} does"
        there += f": give an address of its own for the locks, {database}://…"
    raise SettingsError(there)


def shown(source: Any) -> str:
    """Return what *source*, a url or a pool or an engine, may be called in public: without a password."""
    if not isinstance(source, str):
        return f"{type(source).__name__} {getattr(source, 'url', '')}".rstrip()  # engines hide theirs
    place, mark, options = source.partition("?")
    scheme, colon, rest = place.partition("://")
    account, at, where = rest.rpartition("@")
    if scheme.lower() in ("http", "https"):  # whatever is before the host may be an access token
        return f"{scheme}{colon}{'***@' if at else ''}{where.partition('#')[0]}"
    if at and ":" in account:
        place = f"{scheme}{colon}{account.partition(':')[0]}:***@{where}"
    return place if "@" in options else f"{place}{mark}{options}"


def open_tables(url: str, options: StoreOptions) -> Tables:
    """Return the tables of the store that *url* names, to look after them."""
    url = address_of(url)
    scheme = url.partition("://")[0].lower()
    if scheme == "sqlite":
        from holdfast.stores.sqlite.tables import SQLiteTables

        return SQLiteTables(url, options)
    store = open_store(url, options)  # complains if there is no such store
    if (tables := getattr(store, "tables", None)) is None:
        raise SettingsError(f"{scheme}:// has no tables of its own")
    return tables()  # type: ignore[no-any-return]


def _dialect(source: Any) -> str | None:
    """Return which database an SQLAlchemy engine is for; None for what is not an engine."""
    if not hasattr(source, "dispose") or not hasattr(source, "url"):
        return None
    return getattr(getattr(source, "dialect", None), "name", None)


def _store_from(source: Any, options: StoreOptions) -> Store:
    """Return a store whose connections come from a pool or an engine."""
    name, dialect = type(source).__name__, _dialect(source)
    if name.startswith("Async"):
        url = "a url" if dialect is None else "its url, engine.url, if that is all it takes to connect"
        raise SettingsError(
            f"the connections of {name} belong to an event loop, and also AsyncHoldfast asks from threads:"
            f" give {url}; or a psycopg_pool.ConnectionPool, or an engine of create_engine()"
        )
    if hasattr(source, "getconn") and hasattr(source, "putconn"):
        return import_module(_BUILT_IN["postgresql"]).from_pool(source, options)  # type: ignore[no-any-return]
    if hasattr(source, "raw_connection") and dialect in _BUILT_IN:
        return import_module(_BUILT_IN[dialect]).from_engine(source, options)  # type: ignore[no-any-return]
    raise SettingsError(
        f"the store's url is {source!r}; it must be a string such as 'sqlite:///locks.db', a"
        " psycopg_pool.ConnectionPool, or an SQLAlchemy engine or URL for SQLite, PostgreSQL or MySQL"
    )
