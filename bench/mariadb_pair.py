"""One uncontended pair on MariaDB, beside mariadb-slap, or beside bare PyMySQL where that is not here."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench import many, server_pair
from bench.bare_servers import BareMariaDB
from bench.limits import Slap
from bench.measure import folder
from bench.processes import Ready
from bench.report import Line
from bench.server_pair import Limit, Targets
from bench.servers import MARIADB, Place, not_here, running
from tests.servers.binaries import find

TITLE = "MariaDB: one uncontended pair"
TARGETS = Targets(sync=0.75, bare=0.85, processes=0.6)


def run(quick: bool) -> list[Line]:
    if missing := MARIADB.missing():
        return [not_here("MariaDB", missing)]
    with folder() as scripts, running(MARIADB) as place:
        if find("mariadb-slap") is None:
            missing = not_here("mariadb-slap", "bare PyMySQL stands in: install mariadb-client")
            return [missing, *server_pair.measure(place, quick, _driver(place), BareMariaDB, TARGETS)]
        slap = Slap(place.database(), scripts)
        limit = Limit("mariadb-slap", slap.loop, slap.rate)
        return server_pair.measure(place, quick, limit, BareMariaDB, TARGETS)


def _driver(place: Place) -> Limit:
    """Measure with PyMySQL what there is no C client for."""
    url = place.database()
    pair = BareMariaDB(url).pair

    def loop(times: int) -> None:
        for number in range(times):
            pair(f"key-{number % many.KEYS}")

    def rate(clients: int, seconds: float) -> float:
        return many.rate(_bare_worker, clients, seconds, partial(BareMariaDB, url))

    return Limit("bare PyMySQL", loop, rate)


def _bare_worker(index: int, ready: Ready, connect: Any) -> int:
    return many.hammer(index, ready, connect().pair)
