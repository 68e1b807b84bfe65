"""One client holds 10,000 leases: what does keeping them alive cost, and is any of them renewed late?"""

from __future__ import annotations

import time
from typing import Any

from bench import bare
from bench.measure import folder
from bench.report import Line, milliseconds
from holdfast import Holdfast
from holdfast.clock import boot_time
from holdfast.core.requests import Renew

TITLE = "Renewal of 10,000 leases"
LEASES = 10_000


def run(quick: bool) -> list[Line]:
    ttl = 6.0 if quick else 20.0
    with folder() as place, Holdfast(bare.create(place / "locks.db")) as locks:
        with locks.hold("first"):
            time.sleep(0.5)  # a keeper that has just started asks about what it has, once: not that round
        seen = Watch(locks)
        leases = [locks.acquire(f"key-{number}", ttl=ttl) for number in range(LEASES)]
        seen.plan([lease._kept for lease in leases])
        patience = time.monotonic() + ttl
        while not seen.complete and time.monotonic() < patience:
            time.sleep(0.05)
        lost = sum(not lease.held for lease in leases)
    assert seen.complete, f"{len(seen.planned)} leases were not renewed in time"
    beside = f"{seen.requests} requests"
    return [
        Line(
            "statements of a round",
            f"{seen.statements}",
            f"{beside}, {seen.executions:,} executions",
            float(seen.statements),
            20.0,
            least=False,
            unit="",
            means="Until each lease was renewed once; BEGIN and COMMIT count too. A statement that is given"
            " many rows in one call counts once; how often it ran is told beside.",
            label="renewal: statements of a round",
        ),
        Line(
            "database time of a round",
            milliseconds(seen.took),
            beside,
            seen.took,
            1.0,
            least=False,
            unit="s",
            means="What the requests took, one after the other.",
            label="renewal: database time of a round",
        ),
        Line(
            "longest delay, of the slack",
            milliseconds(seen.latest[0]),
            f"slack {milliseconds(seen.latest[1])}",
            seen.latest[0] / seen.latest[1],
            0.5,
            least=False,
            means="How long after its time a lease was renewed, at worst, beside the time from then to the"
            " end of its trust.",
            label="renewal: longest delay, of the slack",
        ),
        Line("leases lost", f"{lost}", f"of {LEASES:,}", means="There should be none."),
    ]


class Watch:
    """Looks over the shoulder of a client's keeper."""

    def __init__(self, locks: Holdfast) -> None:
        self.planned: dict[str, tuple[float, float]] = {}  # attempt: when it is due, and the slack after
        self.complete = False
        self.requests = self.statements = self.executions = 0
        self._last = ""
        self.took = 0.0
        self.latest = (0.0, 1.0)  # delay and slack of the lease that was worst off
        self._store = locks._store
        self._execute = self._store.execute
        self._store.execute = self._watched

    def plan(self, kept: list[Any]) -> None:
        self.planned |= {
            each.grant.attempt: (each.renew_at, each.trusted_until - each.renew_at) for each in kept
        }

    def _watched(self, request: Any) -> Any:
        if not isinstance(request, Renew) or self.complete:
            return self._execute(request)
        self._store._database._connection.set_trace_callback(self._count)
        asked = boot_time()
        answer = self._execute(request)
        done = boot_time()
        self._store._database._connection.set_trace_callback(None)
        self.requests += 1
        self.took += done - asked
        for lease in request.leases:
            due, slack = self.planned.pop(lease.attempt, (done, 1.0))
            self.latest = max(self.latest, (max(done - due, 0.0), slack), key=lambda each: each[0] / each[1])
        self.complete = not self.planned
        return answer

    def _count(self, statement: str) -> None:
        self.executions += 1
        start = statement[:30]
        if start != self._last:  # executemany is one call, however many rows it is given
            self.statements += 1
        self._last = start
