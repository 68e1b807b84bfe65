"""What a server counts, for ``GET /metrics`` in the text format of Prometheus.

Labels are route templates, methods, classes of statuses and kinds of answers: of bounded number, and
never a key, an owner or a principal. Observing never raises: a server must not fail because it counts.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from typing import TypeVar

from holdfast import __version__
from holdfast.core import cluster as c
from holdfast.core import requests as r
from holdfast.core.plans import Clock
from holdfast.core.wire import ANSWERS, POSSIBLE
from holdfast.errors import HoldfastError, kind_of
from holdfast.server.system.instruments import OTHER, Counter, Gauge, Histogram, Instrument

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CUTS = ("strangers", "full", "refused", "handshake")
MOST_REMEMBERED = 50_000  # attempts in queues, to know how long they waited

# From a request in memory to one that waited for a slow disk; and from there to people's patience.
LATENCIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
WAITS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_LOSSES = ("expired", "broken", "taken over")
# What is counted by the name that it has on the wire.
_NAMES = {kind: name for name, kind in ANSWERS.items()}
_REFUSALS = {kind: _NAMES[kind] for kind in POSSIBLE[r.Acquire] if kind not in (r.Granted, r.Queued, r.Done)}
_WORK_REFUSALS = (c.Full, c.NotDue, c.Ended, r.Busy, r.NotHeld)
_OUTCOMES: dict[type, str] = {c.Beat: "not_alive", **{kind: _NAMES[kind] for kind in _WORK_REFUSALS}}

I = TypeVar("I", bound=Instrument)  # noqa: E741


class Metrics:
    """All instruments of a server."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._all: list[Instrument] = []
        self._queued_at: dict[str, float] = {}  # attempt → when it was first told to wait

        counter, asked, gauge, histogram = self._counter, self._asked, self._gauge, self._histogram

        # What was asked.
        self.requests = counter("requests", "Requests that were answered.", "route", "method", "status")
        self.request_seconds = histogram(
            "request_seconds", "Time from a request's last byte to its answer.", LATENCIES, "route"
        )
        self.connections = gauge("connections", "Open connections, with TLS handshakes under way.")
        self.strangers = gauge("strangers", "Those on which nobody has been let in yet.")
        self.streams = gauge("streams", "Open event streams.", "kind")
        self.waiters = gauge("waiters", "Acquires that the server waits for at the moment.")

        # What became of it.
        self.grants = counter("grants", "Locks that were granted, by an answer or by a hand-over.")
        self.refusals = counter("refusals", "Acquires that were neither granted nor queued.", "answer")
        self.queued = counter("queued", "Attempts that joined a queue.")
        self.queue_position = histogram("queue_position", "The place at which they joined it.", SIZES)
        self.wait_seconds = histogram(
            "wait_seconds", "Time from being queued to being granted, as far as this server saw both.", WAITS
        )
        self.handovers = counter("handovers", "Locks that went to the next in line.")
        self.losses = counter("losses", "Holders that were told that they lost the lock.", "why")
        for why in _LOSSES:  # there from the beginning: an alarm sees no first one that comes out of nowhere
            self.losses.add(why.replace(" ", "_"), by=0)
        self.leases = gauge("leases", "Leases that were granted here, and have not ended yet.")
        self.queue_places = gauge("queue_places", "Places in queues that callers of this server have.")

        # Clusters.
        self.instances = gauge("instances", "Instances in the store, by their state.", "state")
        self.work = gauge("work", "Work in the store that is not completed.", "type", "state")
        self.work_waiting = gauge(
            "work_waiting_seconds", "How long the oldest work that is offered has been due.", "type"
        )
        self.claims = counter("claims", "Claims of instances.", "outcome")
        self.claimed = counter("claimed", "Pieces of work that were claimed.")
        self.assigns = counter("assigns", "Work that was asked for by its key.", "outcome")
        self.finishes = counter("finishes", "Assignments that were to end.", "outcome")

        # The store.
        self.store_seconds = histogram(
            "store_seconds", "Time that the store took, with waiting for its turn.", LATENCIES, "request"
        )
        self.store_errors = counter("store_errors", "Requests that the store failed.", "request", "error")
        self.store_pending = gauge("store_pending", "Requests that wait for the store.")
        self.commit_size = histogram(
            "commit_size", "How many requests the store answered in one commit, or in one turn.", SIZES
        )
        self.swept = counter("swept", "What sweeping has forgotten.", "what")

        # Streams, and who may not.
        self.events_sent = asked("events_sent", "Events sent to streams.")
        self.signals_sent = asked("signals_sent", "Wake-ups sent to streams.")
        self.slow_readers = asked("slow_readers", "Peers dropped because they did not read.")
        self.unheard = asked(
            "unheard", "Requests refused before they were complete: malformed, too large, too slow."
        )
        self.connections_cut = counter(
            "connections_cut", "Connections that were cut off before somebody was let in.", "why"
        )
        for why in CUTS:
            self.connections_cut.add(why, by=0)
        self.auth_failures = counter("auth_failures", "Requests without a valid access token.")
        self.access_denied = counter("access_denied", "Requests without the right to be done.")
        self.limits_hit = counter("limits_hit", "Requests beyond a limit.", "limit")

        gauge("build_info", "Which release runs, on what.", "version", "python").set(
            1, __version__, platform.python_version()
        )
        self.ready = gauge("ready", "1 if locks can be taken here: a write has worked just now.")
        self.draining = gauge("draining", "1 while the server finishes what is under way.")
        self._process()

    def observe_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request. *route* is its template, and one word for all that have none."""
        self.requests.add(route, method if method in _METHODS else OTHER, f"{status // 100}xx")
        self.request_seconds.observe(seconds, route)

    def group_answered(self, requests: Sequence[object], answers: Sequence[object], seconds: float) -> None:
        """Count what the store has answered at once, by the names of the requests and of errors' classes."""
        self.commit_size.observe(len(requests))
        kinds: dict[type, int] = {}
        for request, answer in zip(requests, answers, strict=True):
            kind = type(request)
            kinds[kind] = kinds.get(kind, 0) + 1
            if isinstance(answer, HoldfastError):
                self.store_errors.add(kind.__name__.lower(), kind_of(answer).__name__)
        for kind, count in kinds.items():
            self.store_seconds.observe(seconds, kind.__name__.lower(), times=count)

    def observe_answer(self, request: object, answer: object) -> None:
        """Count what became of a lock, by what the store has answered to *request*."""
        if isinstance(request, r.Acquire):
            self._acquired(request, answer)
            return
        if isinstance(answer, r.Released):
            if answer.next is not None:
                self.handovers.add()
            if isinstance(request, r.Release):
                self._queued_at.pop(request.attempt, None)  # who entered by the hand-over did not ask again
            return
        if isinstance(request, c.Finish):
            self.finishes.add(_OUTCOMES.get(type(answer), request.ending))
        if isinstance(request, c.Claim):
            works = len(answer.works) if isinstance(answer, c.Claimed) else 0
            self.claims.add(_OUTCOMES.get(type(answer), "work" if works else "nothing"))
            self.claimed.add(by=works)
            self.grants.add(by=works)
        elif isinstance(request, c.Assign):
            self.assigns.add(_OUTCOMES.get(type(answer), "assigned"))
            self.grants.add(by=isinstance(answer, c.Assigned))
        elif isinstance(answer, r.Renewed):
            for lease in answer.leases:
                if lease.outcome == "lost":
                    self.losses.add((lease.why or "unknown").replace(" ", "_"))
        elif isinstance(answer, r.Swept):
            for what in ("expired", "tickets", "locks", "ended", "history"):
                self.swept.add(what, by=getattr(answer, what))
        elif isinstance(answer, r.NotHeld):
            if answer.why in _LOSSES and isinstance(request, r.Release | r.Downgrade | c.Finish):
                self.losses.add(answer.why.replace(" ", "_"))
        elif getattr(answer, "next", None) is not None:
            self.handovers.add()
        if isinstance(request, r.Withdraw):
            self._queued_at.pop(request.attempt, None)

    def entered(self, attempt: str) -> None:
        """Count a lock that its caller enters by the hand-over."""
        self.grants.add()
        since = self._queued_at.pop(attempt, None)
        if since is not None:
            self.wait_seconds.observe(self._clock() - since)

    def _acquired(self, request: r.Acquire, answer: object) -> None:
        if isinstance(answer, r.Granted):
            self.grants.add()
        elif isinstance(answer, r.Queued):
            # Otherwise it asks again, at the same place or a better one.
            if request.attempt not in self._queued_at:
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

    def render(self) -> bytes:
        """Return everything in the text format of Prometheus."""
        lines = [line for instrument in self._all for line in instrument.lines()]
        return ("\n".join(lines) + "\n").encode()

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return self._keep(Counter(f"holdfast_{name}_total", help, labels))

    def _asked(self, name: str, help: str) -> Gauge:
        """Return a counter that somebody else counts."""
        return self._keep(Gauge(f"holdfast_{name}_total", help, kind="counter"))

    def _gauge(self, name: str, help: str, *labels: str) -> Gauge:
        return self._keep(Gauge(f"holdfast_{name}", help, labels))

    def _histogram(self, name: str, help: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
        return self._keep(Histogram(f"holdfast_{name}", help, bounds, labels))

    def _keep(self, instrument: I) -> I:
        self._all.append(instrument)
        return instrument

    def _process(self) -> None:
        """Add what is known of the process, by the names that everybody uses for it."""
        started = time.time()
        for name, help, kind, read in (
            ("cpu_seconds_total", "User and system time of the process.", "counter", time.process_time),
            ("resident_memory_bytes", "Memory that the process has.", "gauge", _resident),
            ("open_fds", "Open files and connections of the process.", "gauge", _open_files),
            ("max_fds", "How many it may have open.", "gauge", _most_files),
            ("start_time_seconds", "When it was started, since the epoch.", "gauge", lambda: started),
        ):
            self._keep(Gauge(f"process_{name}", help, kind=kind)).ask(read)


def _open_files() -> float:
    return len(os.listdir("/proc/self/fd")) - 1  # this look itself has one


def _resident() -> float:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _most_files() -> float:
    import resource  # not everywhere

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
