"""One uncontended pair on PostgreSQL, beside pgbench."""

from __future__ import annotations

from bench.bare_servers import BarePostgres
from bench.limits import PgBench
from bench.measure import folder
from bench.report import Line
from bench.server_pair import Limit, Targets, measure
from bench.servers import POSTGRES, not_here, running

TITLE = "PostgreSQL: one uncontended pair"


def run(quick: bool) -> list[Line]:
    if missing := POSTGRES.missing():
        return [not_here("PostgreSQL", missing)]
    with folder() as scripts, running(POSTGRES) as place:
        durable = PgBench(place.database(), scripts, durable=True)
        asynchronous = PgBench(place.database(), scripts, durable=False)
        return measure(
            place,
            quick,
            Limit(
                "pgbench",
                durable.loop,
                durable.rate,
                ("pgbench, asynchronous release", asynchronous.loop),
            ),
            BarePostgres,
            Targets(sync=1.0, bare=0.9, processes=0.8, task=0.8, tasks=1.0, dlock=1.0),
        )
