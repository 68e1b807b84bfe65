"""What a run leaves behind: who asked what and when, what came of it, and what the database says of it.

A run is a folder. Each process appends lines of JSON to a file of its own under ``calls/``, one when it asks
and one when it is answered, so a process that is killed leaves questions without answers: those are unknown.
All times of processes are seconds of the boot-time clock, which all processes of a machine share and which
no fault changes. Times of the store are microseconds since the epoch, by the store's own clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["ok", "refused", "unknown"]

# What is tried on a key is told by its first part. Only the first kind is for the checker of linearizability.
PLAIN = "plain"  # exclusive, reentrant: acquire, try, reenter, release
SHARED = "shared"  # readers and writers
PERMITS = "permits"  # semaphores
OPERATION = "operation"  # done by one, told to all
FENCED = "fenced"  # an update inside a transaction that begins with `lease.fence(connection)`
RAISED = "raised"  # an update of another database, the token raised before the first read
BARE = "bare"  # the control: the same update with no fence, which loses updates under pauses
KINDS = (PLAIN, SHARED, PERMITS, OPERATION, FENCED, RAISED, BARE)
SEMAPHORE = 3  # permits of each semaphore
LAST_LOOK = "last-look"  # the owner who takes every lock once when all is over; what it does is not recorded


@dataclass(frozen=True, slots=True)
class Call:
    """What a program asked of the library, and what it was told."""

    worker: str  # the process, the dot, its thread or task: "sync-3.1". A process started anew has a new name
    number: int  # of the call, in this process
    kind: str  # acquire, try, reenter, release, update, operate
    key: str
    owner: str  # one for each turn, re-entries included; so it tells which turn of the audit is ours
    called: float
    returned: float = math.inf  # never
    outcome: Outcome = "unknown"
    token: int = 0  # 0: none is known
    ttl: float = 0.0
    wait: float = 0.0  # how long it was willing to
    mode: str = "exclusive"  # or "shared"
    take: int = 1
    trusted_until: float = 0.0  # of an ok acquire, try or reenter: as the answer came; renewals add to it
    value: str = ""  # of an update: what was added; of an operation: the result
    error: str = ""  # the name of what was raised, and its text
    by: str = ""  # the thread or task that did it, if the lease was passed on: another one of the process


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a client to its store, and the answer. A batch of renewals is one for each lease.

    Who enters by a hand-over asks nothing. That is noted as an `Enter`: called at the instant from which it
    trusts the lease for the claim window, and returned when it has entered.
    """

    worker: str  # the process
    number: int
    kind: str  # Acquire, Enter, Renew, Refresh, Release, Withdraw, Break
    key: str
    attempt: str
    owner: str  # only of Acquire
    called: float
    returned: float = math.inf
    outcome: Outcome = "unknown"  # refused: certainly not applied. An answer of any kind is ok
    answer: str = ""  # Granted, Queued, Busy, Released, NotHeld, Withdrawn, …; renewed, held, lost, unknown
    token: int = 0  # of the answer; of Renew and Release: which was asked about
    ttl: float = 0.0
    wait: bool = False
    plain: bool = True  # on plain terms
    holds: int = 0  # of the answer: left (Released), or there are (Granted)
    patience: float = 0.0  # of Acquire and Refresh: how long the ticket lives
    why: str = ""  # of NotHeld, Refused, lost


@dataclass(frozen=True, slots=True)
class Trust:
    """How long a turn was trusted in the end: noted when it is over, renewals included."""

    worker: str
    key: str
    owner: str
    token: int
    since: float  # when the answer that granted it was there
    until: float  # when it was given up, or when the trust ran out, whichever came first


@dataclass(frozen=True, slots=True)
class Audit:
    """A row of the tables as it was changed: written by a trigger, in the transaction that changed it."""

    id: int  # in the order in which changes of one key were made
    at: int  # when, by the store's clock
    what: str  # lock, hold, unhold, ticket, unticket, outcome
    key: str
    token: int = 0
    owner: str = ""  # empty: nobody
    attempt: str = ""
    claimed: bool = True
    expires_at: int = 0
    granted_at: int = 0
    number: int = 0  # of a ticket
    holds: int = 0  # of a lock: rows in its table of holds
    waiters: int = 0
    terms: str = ""  # JSON; empty: plain


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault: what was done to whom, and from when until when, by the boot-time clock."""

    fault: str  # its class: "kill client"
    target: str
    began: float
    ended: float
    pair: int = 0  # faults with the same number, not 0, were at work together
    detail: str = ""
    # What the store does not promise while it is at work, and for one ttl after: "belief" for a stepped clock
    # of the database.
    excuses: tuple[str, ...] = ()


@dataclass(slots=True)
class Run:
    """What was run, and where."""

    store: str  # sqlite, postgres, mariadb
    seed: int
    began: float
    ended: float = 0.0
    seconds: float = 0.0  # of traffic and faults
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    replay: str = ""  # the command that runs it again


@dataclass(slots=True)
class Clock:
    """The store's clock beside ours, looked at now and then."""

    boot: float
    store: int


@dataclass(slots=True)
class History:
    """All of it."""

    run: Run
    calls: list[Call] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    trusts: list[Trust] = field(default_factory=list)
    audit: list[Audit] = field(default_factory=list)
    faults: list[Injected] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    # What each resource has in the end, by key, in order: values of the acknowledged updates and of others.
    resources: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be."""

    rule: str  # its name: "tokens rise"
    key: str
    text: str  # what was seen, with the values


@dataclass(slots=True)
class Verdict:
    """What a checker says of a history."""

    checker: str  # "order" or "linear"
    violations: list[Violation] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)  # by rule: how many things it was applied to
    undecided: int = 0
    figures: dict[str, float] = field(default_factory=dict)  # what else is worth telling


def entered(history: History) -> set[tuple[str, int]]:
    """Return the attempts that have entered by a hand-over, each with its token."""
    return {(ask.attempt, ask.token) for ask in history.asks if ask.kind == "Enter"}


# Reading and writing. The lines of a process are written by `recorder`; everything else by this.

CALLS, AUDIT, FAULTS, CLOCKS, RUN, RESOURCES = (
    "calls",
    "audit.jsonl",
    "faults.jsonl",
    "clocks.jsonl",
    "run.json",
    "resources.json",
)
_KINDS: dict[str, type[Call] | type[Ask] | type[Trust]] = {"call": Call, "ask": Ask, "trust": Trust}


def write(folder: Path, history: History) -> None:
    """Write everything but what processes write themselves."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RUN).write_text(json.dumps(asdict(history.run), indent=2))
    (folder / RESOURCES).write_text(json.dumps(history.resources))
    for name, rows in ((AUDIT, history.audit), (FAULTS, history.faults), (CLOCKS, history.clocks)):
        with (folder / name).open("w") as file:
            for row in rows:
                file.write(json.dumps(asdict(row)) + "\n")


def read(folder: Path) -> History:
    """Return what a run has left in *folder*."""
    history = History(Run(**json.loads((folder / RUN).read_text())))
    history.audit = [Audit(**line) for line in _lines(folder / AUDIT)]
    history.faults = [
        Injected(**{**line, "excuses": tuple(line["excuses"])}) for line in _lines(folder / FAULTS)
    ]
    history.clocks = [Clock(**line) for line in _lines(folder / CLOCKS)]
    history.resources = json.loads((folder / RESOURCES).read_text())
    for path in sorted((folder / CALLS).glob("*.jsonl")):
        for record in read_process(path):
            if isinstance(record, Call):
                history.calls.append(record)
            elif isinstance(record, Ask):
                history.asks.append(record)
            else:
                history.trusts.append(record)
    history.calls.sort(key=lambda call: call.called)
    history.asks.sort(key=lambda ask: ask.called)
    return history


def read_process(path: Path) -> Iterator[Call | Ask | Trust]:
    """Return what a process has written down: a question and its answer as one record.

    Lines are ``["call", 7, {what was asked}]``, then ``["call", 7, {what came of it}]``, both with fields of
    the record; a line that was cut off by a kill is not there. A line between them adds to what was asked.
    """
    open_questions: dict[tuple[str, int], dict[str, Any]] = {}
    for line in _lines(path):
        what, number, fields = line
        if what == "trust":
            yield Trust(**fields)
            continue
        record = {"number": number, **open_questions.pop((what, number), {}), **fields}
        if "outcome" in fields:
            yield _KINDS[what](**record)
        else:
            open_questions[what, number] = record
    for (what, _), asked in open_questions.items():
        yield _KINDS[what](**asked)


def _lines(path: Path) -> Iterator[Any]:
    if not path.exists():
        return
    with path.open() as file:
        for line in file:
            if line.endswith("\n"):  # else the process was killed in the middle of it
                yield json.loads(line)
