"""The store that a command works on: found, made absolute, and looked at before it is opened."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from urllib.parse import quote, unquote

from holdfast import errors, identity
from holdfast.cli.options import is_url, url_of
from holdfast.stores import default_url
from holdfast.stores.base import StoreOptions

SQLITE = "sqlite:///"


def target(args: argparse.Namespace) -> str:
    """Return the absolute URL of a store that other processes can see as well."""
    given = url_of(args)
    url = default_url() if given is None else given
    if url.startswith("memory://"):
        raise errors.SettingsError(
            "memory:// is inside one process, where no other command sees it: use sqlite:///locks.db"
        )
    return absolute(url)


def absolute(url: str) -> str:
    """Return *url* with an absolute path: who gets it may be, or go, somewhere else."""
    place, mark, query = url.partition("?")
    path = place.removeprefix(SQLITE)
    name = unquote(path)
    if not place.startswith(SQLITE) or name in ("", ":memory:") or Path(name).is_absolute():
        return url
    # Only what means something in a URL: a folder's name need not be UTF-8, and then cannot be quoted.
    here = re.sub("[%?#]", lambda match: quote(match[0]), str(Path.cwd()))
    return f"{SQLITE}{Path(here) / path}{mark}{query}"


def sqlite_path(url: str) -> Path:
    """Return the file that an ``sqlite:`` URL names; complain if the URL is wrong."""
    from holdfast.stores.sqlite.store import from_url

    return from_url(url, StoreOptions(identity.new_client())).path


def is_missing(url: str) -> bool:
    """Tell whether *url* names a file that does not exist. Looking at locks should not make it."""
    if not url.startswith("sqlite:"):
        return False
    try:
        sqlite_path(url).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass  # the store has better words for it
    return False


def existing(args: argparse.Namespace) -> str:
    """Return the store's URL, for a command that makes no sense without one that is there."""
    url = target(args)
    if is_missing(url):
        raise errors.StoreMisconfigured(f"{sqlite_path(url)} does not exist; nothing was ever locked there")
    return url


def looked_at(args: argparse.Namespace) -> str:
    """Return the store's URL, for a command that lists: the user's own file need not be there yet."""
    is_default = url_of(args) is None and not os.environ.get("HOLDFAST_URL")
    return target(args) if is_default else existing(args)


def or_empty(url: str) -> str:
    """Return *url*, or that of an empty store if its file is not there: a look should not make it."""
    return "memory://" if is_missing(url) else url


def refuse_url(args: argparse.Namespace) -> None:
    """Complain about a url in the place of a key: the answer would be about another store than was meant."""
    if url_of(args) is not None:  # then it is a key: both are named
        return
    for name in ("key", "prefix", "pattern", "keys"):
        given = getattr(args, name, None) or ()
        for text in (given,) if isinstance(given, str) else given:
            if is_url(text):
                raise errors.SettingsError(
                    f"{shown(text)} is where a key is expected; the store is named with --url: --url URL."
                    " If it is a key, name both"
                )


def shown(url: str) -> str:
    """Return *url* for people's eyes: without user, password and options."""
    scheme, mark, rest = re.split("[?#]", url, maxsplit=1)[0].partition("://")
    if scheme == "sqlite":
        return f"{scheme}{mark}{rest}"
    authority, slash, path = rest.partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}"
