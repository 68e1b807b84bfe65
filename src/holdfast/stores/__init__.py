"""Where locks live. `open_store` turns a URL into a store; nothing else knows which stores exist."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.errors import SettingsError

if TYPE_CHECKING:
    from holdfast.stores.base import Store, StoreOptions

ENTRY_POINTS = "holdfast.stores"

# Imported only when a URL asks for them, so that no driver is loaded in vain.
_BUILT_IN = {
    "memory": "holdfast.stores.memory",
    "sqlite": "holdfast.stores.sqlite",
}


def open_store(url: str, options: StoreOptions) -> Store:
    """Return the store that *url* names, not yet connected.

    Third parties add a scheme with an entry point in the group ``holdfast.stores`` whose value is a
    callable ``(url, options) -> Store``.
    """
    if not isinstance(url, str):
        raise SettingsError(f"the store's url is {url!r}; it must be a string such as 'sqlite:///locks.db'")
    scheme = urlsplit(url).scheme
    if module := _BUILT_IN.get(scheme):
        return import_module(module).from_url(url, options)  # type: ignore[no-any-return]
    for entry in entry_points(group=ENTRY_POINTS, name=scheme):
        return entry.load()(url, options)  # type: ignore[no-any-return]
    known = ", ".join(f"{name}://" for name in sorted(_BUILT_IN))
    raise SettingsError(f"no store for {url!r}: the scheme must be one of {known}, or a plugin's")
