"""What a server counts, for ``GET /metrics`` in the text format of Prometheus.

Labels are route templates, methods, classes of statuses and kinds of answers: of bounded number, and
never a key, an owner or a principal. Observing never raises: a server must not fail because it counts.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from typing import TypeVar

from holdfast import __version__
from holdfast.core import cluster as c
from holdfast.core import requests as r
from holdfast.server.operating.instruments import (
    LATENCIES,
    OTHER,
    SIZES,
    WAITS,
    Counter,
    Gauge,
    Histogram,
    Instrument,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CUTS = ("strangers", "full", "refused", "handshake")
MOST_REMEMBERED = 50_000  # attempts in queues, to know how long they waited

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_LOSSES = ("expired", "broken", "taken over")
_REFUSALS = {
    r.Busy: "busy",
    r.TooManyHolds: "too_many_holds",
    r.Refused: "refused",
    r.Deadlocked: "deadlocked",
    r.Failed: "failed",
    r.NotHeld: "not_held",
}

_OUTCOMES = {
    c.Beat: "not_alive",
    c.Full: "full",
    c.NotDue: "not_due",
    c.Ended: "ended",
    r.Busy: "busy",
    r.NotHeld: "not_held",
}

I = TypeVar("I", bound=Instrument)  # noqa: E741


class Metrics:
    """All instruments of a server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all: list[Instrument] = []
        self._queued_at: dict[str, float] = {}  # attempt → when it was first told to wait

        # What was asked.
        self.requests = self._counter(
            "requests_total", "Requests that were answered.", "route", "method", "status"
        )
        self.request_seconds = self._histogram(
            "request_seconds", "Time from a request's last byte to its answer.", LATENCIES, "route"
        )
        self.connections = self._gauge("connections", "Open connections, with TLS handshakes under way.")
        self.strangers = self._gauge("strangers", "Those on which nobody has been let in yet.")
        self.streams = self._gauge("streams", "Open event streams.", "kind")
        self.waiters = self._gauge("waiters", "Acquires that the server waits for at the moment.")

        # What became of it.
        self.grants = self._counter("grants_total", "Answers that granted a lock.")
        self.refusals = self._counter(
            "refusals_total", "Acquires that were neither granted nor queued.", "answer"
        )
        self.queued = self._counter("queued_total", "Attempts that joined a queue.")
        self.queue_position = self._histogram("queue_position", "The place at which they joined it.", SIZES)
        self.wait_seconds = self._histogram(
            "wait_seconds", "Time from being queued to being granted, as far as this server saw both.", WAITS
        )
        self.handovers = self._counter("handovers_total", "Locks that went to the next in line.")
        self.losses = self._counter("losses_total", "Holders that were told that they lost the lock.", "why")
        for why in _LOSSES:  # there from the beginning: an alarm sees no first one that comes out of nowhere
            self.losses.add(why.replace(" ", "_"), by=0)
        self.leases = self._gauge("leases", "Leases that were granted here, and have not ended yet.")
        self.queue_places = self._gauge("queue_places", "Places in queues that callers of this server have.")

        # Clusters.
        self.instances = self._gauge("instances", "Instances in the store, by their state.", "state")
        self.work = self._gauge("work", "Work in the store that is not completed.", "type", "state")
        self.work_waiting = self._gauge(
            "work_waiting_seconds", "How long the oldest work that is offered has been due.", "type"
        )
        self.claims = self._counter("claims_total", "Claims of instances.", "outcome")
        self.claimed = self._counter("claimed_total", "Pieces of work that were claimed.")
        self.assigns = self._counter("assigns_total", "Work that was asked for by its key.", "outcome")
        self.finishes = self._counter("finishes_total", "Assignments that were to end.", "outcome")

        # The store.
        self.store_seconds = self._histogram(
            "store_seconds", "Time that the store took, with waiting for its turn.", LATENCIES, "request"
        )
        self.store_errors = self._counter(
            "store_errors_total", "Requests that the store failed.", "request", "error"
        )
        self.store_pending = self._gauge("store_pending", "Requests that wait for the store.")
        self.commit_size = self._histogram(
            "commit_size", "How many requests the store answered in one commit.", SIZES
        )
        self.swept = self._counter("swept_total", "What sweeping has forgotten.", "what")

        # Streams, and who may not.
        self.events_sent = self._asked("events_sent_total", "Events sent to streams.")
        self.signals_sent = self._asked("signals_sent_total", "Wake-ups sent to streams.")
        self.slow_readers = self._asked("slow_readers_total", "Peers dropped because they did not read.")
        self.unheard = self._asked(
            "unheard_total", "Requests refused before they were complete: malformed, too large, too slow."
        )
        self.connections_cut = self._counter(
            "connections_cut_total", "Connections that were cut off before somebody was let in.", "why"
        )
        for why in CUTS:
            self.connections_cut.add(why, by=0)
        self.auth_failures = self._counter("auth_failures_total", "Requests without a valid access token.")
        self.access_denied = self._counter("access_denied_total", "Requests without the right to be done.")
        self.limits_hit = self._counter("limits_hit_total", "Requests beyond a limit.", "limit")

        self._gauge("build_info", "Which release runs, on what.", "version", "python").set(
            1, __version__, platform.python_version()
        )
        self.ready = self._gauge("ready", "1 if locks can be taken here: a write has worked just now.")
        self.draining = self._gauge("draining", "1 while the server finishes what is under way.")
        self._process()

    def observe_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request. *route* is its template, and one word for all that have none."""
        self.requests.add(route, method if method in _METHODS else OTHER, f"{status // 100}xx")
        self.request_seconds.observe(seconds, route)

    def store_answered(self, request: str, seconds: float, error: str | None = None) -> None:
        """Count what the store was asked, by the names of the request and of the error's class."""
        name = request.lower()
        self.store_seconds.observe(seconds, name)
        if error is not None:
            self.store_errors.add(name, error)

    def group_committed(self, size: int) -> None:
        """Count how many requests the store has answered at once."""
        self.commit_size.observe(size)

    def observe_answer(self, request: object, answer: object) -> None:
        """Count what became of a lock, by what the store has answered to *request*."""
        if isinstance(request, r.Acquire):
            self._acquired(request, answer)
        elif isinstance(request, c.Claim | c.Assign | c.Finish):
            self._worked(request, answer)
        elif isinstance(answer, r.Renewed):
            for lease in answer.leases:
                if lease.outcome == "lost":
                    self.losses.add((lease.why or "unknown").replace(" ", "_"))
        elif isinstance(answer, r.Swept):
            for what in ("expired", "tickets", "locks", "ended", "history"):
                self.swept.add(what, by=getattr(answer, what))
        elif isinstance(answer, r.NotHeld):
            if answer.why in _LOSSES and isinstance(request, r.Release | r.Downgrade):
                self.losses.add(answer.why.replace(" ", "_"))
        elif getattr(answer, "next", None) is not None:
            self.handovers.add()
        if isinstance(request, r.Withdraw):
            self._queued_at.pop(request.attempt, None)

    def _acquired(self, request: r.Acquire, answer: object) -> None:
        if isinstance(answer, r.Granted):
            self.grants.add()
        elif isinstance(answer, r.Queued):
            if (
                request.attempt not in self._queued_at
            ):  # else it asks again, at the same place or a better one
                self.queued.add()
                self.queue_position.observe(answer.position)
                if len(self._queued_at) >= MOST_REMEMBERED:
                    self._queued_at.pop(next(iter(self._queued_at)))
                self._queued_at[request.attempt] = self._clock()
            return
        elif name := _REFUSALS.get(type(answer)):
            self.refusals.add(name)
        since = self._queued_at.pop(request.attempt, None)
        if since is not None and isinstance(answer, r.Granted):
            self.wait_seconds.observe(self._clock() - since)

    def _worked(self, request: c.Claim | c.Assign | c.Finish, answer: object) -> None:
        if isinstance(request, c.Claim):
            works = len(answer.works) if isinstance(answer, c.Claimed) else 0
            self.claims.add(_OUTCOMES.get(type(answer), "work" if works else "nothing"))
            self.claimed.add(by=works)
            self.grants.add(by=works)
        elif isinstance(request, c.Assign):
            self.assigns.add(_OUTCOMES.get(type(answer), "assigned"))
            self.grants.add(by=isinstance(answer, c.Assigned))
        else:
            self.finishes.add(_OUTCOMES.get(type(answer), request.ending))
            if isinstance(answer, r.NotHeld) and answer.why in _LOSSES:
                self.losses.add(answer.why.replace(" ", "_"))
            elif isinstance(answer, c.Finished) and answer.next is not None:
                self.handovers.add()

    def render(self) -> bytes:
        """Return everything in the text format of Prometheus."""
        lines = [line for instrument in self._all for line in instrument.lines()]
        return ("\n".join(lines) + "\n").encode()

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return self._keep(Counter(f"holdfast_{name}", help, labels))

    def _asked(self, name: str, help: str) -> Gauge:
        """Return a counter that somebody else counts."""
        return self._keep(Gauge(f"holdfast_{name}", help, kind="counter"))

    def _gauge(self, name: str, help: str, *labels: str) -> Gauge:
        return self._keep(Gauge(f"holdfast_{name}", help, labels))

    def _histogram(self, name: str, help: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
        return self._keep(Histogram(f"holdfast_{name}", help, bounds, labels))

    def _keep(self, instrument: I) -> I:
        self._all.append(instrument)
        return instrument

    def _process(self) -> None:
        """Add what is known of the process, by the names that everybody uses for it."""
        cpu = Gauge("process_cpu_seconds_total", "User and system time of the process.", kind="counter")
        cpu.ask(time.process_time)
        memory = Gauge("process_resident_memory_bytes", "Memory that the process has.")
        memory.ask(_resident)
        files = Gauge("process_open_fds", "Open files and connections of the process.")
        files.ask(lambda: len(os.listdir("/proc/self/fd")) - 1)  # this look itself has one
        most = Gauge("process_max_fds", "How many it may have open.")
        most.ask(_most_files)
        started = Gauge("process_start_time_seconds", "When it was started, since the epoch.")
        started.set(time.time())
        self._all += [cpu, memory, files, most, started]


def _resident() -> float:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _most_files() -> float:
    import resource  # not everywhere

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
