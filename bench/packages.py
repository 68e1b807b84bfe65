"""Print the Debian packages that measuring wants, beside the servers, and this machine does not have."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.servers.binaries import find

PACKAGES = {
    "redis-server": "redis-server",  # peers
    "etcd": "etcd-server",
    "mariadb-slap": "mariadb-client",
    "cc": "gcc",  # and what the floors in C are built with
    "/usr/include/stdio.h": "libc6-dev",
    "/usr/include/postgresql/libpq-fe.h": "libpq-dev",
    "mariadb_config": "libmariadb-dev",
}


def missing() -> list[str]:
    """Tell the packages of the programs and headers that are not here."""
    return [
        package
        for needed, package in PACKAGES.items()
        if not (Path(needed).exists() if needed.startswith("/") else find(needed))
    ]


if __name__ == "__main__":
    sys.stdout.write(" ".join(missing()) + "\n")
