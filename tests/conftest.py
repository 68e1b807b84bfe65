"""What all tests share: a header that says what is tested on, and no silent skips.

A test that needs something real (root, mount, /proc …) skips with a reason that begins with ``missing:``.
On a laptop that is a loud line at the end; under ``CI=true`` it is a failure, because there the real
thing has to be there.
"""

from __future__ import annotations

import gc
import os
import platform
import signal
import sqlite3
from collections.abc import Generator
from typing import Any

import pytest

import holdfast
from holdfast.stores import _BUILT_IN
from tests.extent import pytest_addoption, pytest_collection_modifyitems  # noqa: F401
from tests.servers import fixtures
from tests.servers.fixtures import (  # noqa: F401
    mariadb_database,
    mariadb_locks,
    mariadb_server,
    mariadb_url,
    postgres_database,
    postgres_locks,
    postgres_server,
    postgres_url,
)

CI = os.environ.get("CI", "").lower() in ("1", "true")
MISSING = "missing:"


def pytest_configure() -> None:
    """Heed signals, whoever started us in the background: what we start is to be ended by them, too."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays until the end: thousands of tests, and all that they import.

    Some tests collect hundreds of times, and each time it would look at all of that again.
    """
    gc.collect()
    gc.freeze()


def pytest_report_header() -> list[str]:
    stores = ", ".join(f"{name}://" for name in sorted(_BUILT_IN))
    python, system = platform.python_version(), f"{platform.system()} {platform.release()}"
    cores = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    return [
        f"holdfast {holdfast.__version__}: Python {python}, {system}, {cores}",
        f"stores: {stores} (SQLite {sqlite3.sqlite_version}); missing parts {'fail' if CI else 'skip'}",
        fixtures.header(),
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    report = yield
    if CI and report.skipped and MISSING in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: {report.longrepr[2]} (skipping is not allowed under CI=true)"
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section("NOT TESTED", sep="!", red=True, bold=True)
        for report in skipped:
            terminalreporter.line(f"{report.nodeid}: {report.longrepr[2]}", red=True)
