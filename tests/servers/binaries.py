"""Where the programs of the servers are, and which are not there.

Debian keeps PostgreSQL out of the PATH, one directory a version, and the others in ``sbin``, which the PATH
of a plain user leaves out.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

PACKAGES = {
    "postgres": "postgresql",
    "mariadbd": "mariadb-server",
    "pgbouncer": "pgbouncer",
    "libfaketime": "libfaketime",
    "chromium": "chromium",  # for the dashboard; it and the next two are no servers, but as real
    "curl": "curl",
    "openssl": "openssl",
}
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def find(program: str) -> Path | None:
    """Tell where *program* is: in the PATH, else where Debian hides it, the newest version first."""
    places = [os.environ.get("PATH", os.defpath), *_SBIN, *_postgres_places()]
    found = shutil.which(program, path=os.pathsep.join(places))
    return Path(found) if found else None


def need(program: str) -> Path:
    """Tell where *program* is, or raise `FileNotFoundError` with the name of its package."""
    found = find(program)
    if found is None:
        raise FileNotFoundError(f"{program} is not on this machine: install {PACKAGES.get(program, 'it')}")
    return found


def faketime() -> Path | None:
    """Tell where the library is that changes the clock of a program with threads, for ``LD_PRELOAD``."""
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return libraries[0] if libraries else None


def missing_packages() -> list[str]:
    return [package for program, package in PACKAGES.items() if version(program) is None]


def versions() -> list[str]:
    """Tell what was found of each server, for the header of the test run."""
    return [f"{program} {version(program) or 'MISSING'}" for program in PACKAGES]


@functools.cache
def version(program: str) -> str | None:
    """Tell the version of *program*, or None if it is not there."""
    if program == "libfaketime":
        return "found" if faketime() else None
    path = find(program)
    if path is None:
        return None
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"\d+(\.\d+)+", said)
    return number[0] if number else "?"


def _postgres_places() -> list[str]:
    numbered = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    return [str(path) for path in sorted(numbered, key=lambda path: -int(path.parent.name))]
