"""What goes wrong has a cause, and does not last: errors have a fault, and everybody goes on (P8).

What is an excuse while a fault is at work is none at any other time. When a fault is over, its connections
are made again within `AFTER`. A server that was struck may take longer until it commits again; the history
shows how long: until then nobody is served, and how long that may be is for another rule here.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from proof.checkers.order import rules
from proof.checkers.order.clocks import LATE
from proof.checkers.order.rules import Findings
from proof.histories.records import Call, History

# Seconds in which connections are found to be broken, and made again, once a fault is over and somebody was
# served. All 3,394 errors of 240,000 calls were told to who had asked before that.
AFTER = 1.0
OF_THE_STORE = frozenset({"StoreUnavailable", "OutcomeUnknown"})
OF_THE_CALLER = frozenset({"CancelledError", "KeyboardInterrupt"})
CALLERS = frozenset({"cancel", "interrupt"})  # faults that raise them
LOST = " is lost: "  # said to a task inside of a block: what it asks there is cancelled with its lease
STALLED = 20.0  # seconds without any call of a thread; it never took longer than 7.2 s to come back from one
UNSERVED = 3.0  # seconds without any answer to anybody, when no fault is at work

Spans = list[tuple[float, float]]


def check_troubles(history: History, findings: Findings) -> None:
    """Apply the rules."""
    served = sorted(call.returned for call in history.calls if call.outcome == "ok")
    _check_errors(history, served, findings)
    _check_threads(history, findings)
    _check_served(history, served, findings)


def _check_errors(history: History, served: list[float], findings: Findings) -> None:
    spans: Spans = []
    callers: dict[str, Spans] = defaultdict(list)  # process → when its calls may be given up
    for fault in history.faults:
        back = bisect_right(served, fault.ended)
        until = (served[back] if back < len(served) else math.inf) + AFTER
        spans.append((fault.began, until))
        if fault.fault in CALLERS:
            callers[fault.target].append((fault.began, fault.ended + AFTER))
    for call, until in _until(history.calls):
        name = call.error.partition(":")[0]
        if name in OF_THE_STORE:
            causes = spans
        elif name in OF_THE_CALLER:
            causes = callers[process_of(call)]
        else:
            continue
        findings.check(rules.CAUSE)
        if LOST not in call.error and not any(
            began <= until and call.called <= ended for began, ended in causes
        ):
            findings.violated(
                rules.CAUSE,
                call.key,
                f"{call.owner} asked at {call.called:.6f} and was told {call.error}; no fault was at work"
                " that explains it",
            )


def _until(calls: list[Call]) -> Iterator[tuple[Call, float]]:
    """Return calls, and until when they were under way: of those without an answer, until the next one."""
    following: dict[str, float] = {}
    for call in reversed(calls):
        until = call.returned
        if until == math.inf:
            until = following.get(call.worker, call.called + LATE)
        yield call, until
        following[call.worker] = call.called


def _check_threads(history: History, findings: Findings) -> None:
    """No thread or task of a process that lives, and is not stopped, is without a call for long."""
    moments: dict[str, list[float]] = defaultdict(list)  # worker → when it asked, and was answered
    processes: dict[str, str] = {}
    for call in history.calls:
        moments[call.worker] += [call.called] if call.returned == math.inf else [call.called, call.returned]
        processes[call.worker] = process_of(call)
    end = max((max(times) for times in moments.values()), default=0.0)
    lives = dict.fromkeys(processes.values(), end)
    paused: dict[str, Spans] = defaultdict(list)
    for fault in history.faults:
        if fault.fault == "kill client":
            lives[fault.target] = min(fault.began, lives.get(fault.target, end))
        elif fault.fault == "pause client":
            paused[fault.target].append((fault.began, fault.ended))
    for worker, times in moments.items():
        process = processes[worker]
        findings.check(rules.GOES_ON, len(times))
        times.sort()
        if "-fork" not in process:  # a child ends when it has done what it is for
            times.append(max(lives[process], times[-1]))
        for since, until in pairwise(times):
            if until - since > STALLED and _without(since, until, paused[process]) > STALLED:
                findings.violated(
                    rules.GOES_ON,
                    "",
                    f"{worker} did nothing from {since:.6f} to {until:.6f}, and its process was alive",
                )


def _check_served(history: History, served: list[float], findings: Findings) -> None:
    """While no fault is at work, somebody is answered all the time."""
    faults = sorted((fault.began, fault.ended + AFTER) for fault in history.faults)
    longest = 0.0
    last = max((call.called for call in history.calls if call.kind in ("acquire", "try")), default=0.0)
    findings.check(rules.SERVED, len(served))
    for since, answered in pairwise([*served, math.inf]):
        until = min(answered, last)  # when all is over nobody asks any more
        if until - since <= UNSERVED:
            continue
        quiet = max(ended - began for began, ended in _pieces(since, until, faults))
        longest = max(longest, quiet)
        if quiet > UNSERVED:
            findings.violated(
                rules.SERVED,
                "",
                f"nobody was served from {since:.6f} to {until:.6f}, of which {quiet:.1f} s at once were"
                " without any fault",
            )
    findings.figures["longest time without any service, ms"] = round(longest * 1e3)


def _pieces(
    since: float, until: float, spans: Iterable[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    """Return what is left of a time without *spans*, which are in order."""
    place = since
    for began, ended in spans:
        if ended > place and began < until:
            yield place, max(place, began)
            place = max(place, ended)
    yield place, max(place, until)


def _without(since: float, until: float, spans: Spans) -> float:
    """Return how long a time is without *spans*."""
    return sum(ended - began for began, ended in _pieces(since, until, sorted(spans)))


def process_of(call: Call) -> str:
    """Return the process of a thread or task."""
    return call.worker.rpartition(".")[0] or call.worker
