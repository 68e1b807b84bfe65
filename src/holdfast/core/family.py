"""What the kinds of locks have of their own: terms, outcomes, failures. All of it is plain data.

A lease on plain terms is exclusive, and that is all there is to it. Everything else a lock can be (shared, a
semaphore, an operation, slow to open again) is said by the terms of a request, and kept with its ticket and
its hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

from holdfast.core.data import as_dict, data

Mode = Literal["exclusive", "shared", "permits"]

LONGEST = 366 * 86400.0  # seconds of a lease, of being shut because of one, or of keeping a result
LARGEST_RESULT = 64 * 1024  # bytes of an operation's result, as JSON
LARGEST_ERROR = 1000  # characters of a failure, or of any other reason, that are passed on
MOST_FAILURES = 20  # that are remembered of one operation; the count goes on


@data
class Terms:
    """On what terms a lock is asked for, and held."""

    mode: Mode = "exclusive"
    take: int = 1  # how many permits
    permits: int = 0  # how many there are, as the caller believes; 0: as many as the store says
    delay: float = 0.0  # how long the lock stays shut when this lease expires
    operation: bool = False
    max_attempts: int = 0  # failures of an operation until everybody is told to give up; 0: no limit
    at_least: float = 0.0  # how long the lock stays taken, counted from the grant, although it is released

    @property
    def enters(self) -> bool:
        """Whether a winner may enter by the hand-over: nothing depends on whether it really began."""
        return not (self.operation or self.delay or self.at_least)


PLAIN = Terms()


def whereabouts(host: str, pid: int) -> str:
    """Return where somebody is, in words. Who asks over HTTP by hand is no process that we know of."""
    return f"host {host}, pid {pid}" if pid else f"host {host}"


@data
class Failure:
    """One attempt at an operation that did not succeed."""

    owner: str
    host: str
    pid: int
    token: int
    error: str

    def __str__(self) -> str:
        return f"{self.owner} ({whereabouts(self.host, self.pid)}): {self.error}"


@data
class Outcome:
    """How an operation ended. *text* is its result as JSON if it *succeeded*, else what went wrong."""

    succeeded: bool
    text: str
    keep: float = 0.0  # for how long a result is told to whoever asks for the operation, from now on


@data
class Link:
    """One part of a deadlock: *owner* has been waiting for *key*. Attempts are secrets, and not told."""

    owner: str
    key: str
    host: str
    pid: int

    def __str__(self) -> str:
        return f"{self.owner} ({whereabouts(self.host, self.pid)}) waits for {self.key!r}"


@data
class KeptResult:
    """Who has done an operation, while its result is kept. Instants are microseconds of the store's clock."""

    token: int
    until: int
    owner: str
    host: str
    pid: int
    granted_at: int


@data
class Notes:
    """What a store keeps of a key beyond its lease, and seldom has."""

    mode: Mode = "exclusive"  # of the live holds
    permits: int = 0  # how many there are; 0: nobody has said yet
    shut_until: int = 0  # microseconds of the store's clock: granted to nobody before; 0: not shut
    failed: int = 0  # attempts at the operation that is going on
    failures: tuple[Failure, ...] = ()  # the last of them
    kept: KeptResult | None = None  # of the operation that was done last; None too if it was not to be kept


NO_NOTES = Notes()


def fits(wanted: Terms, held: Iterable[Terms], permits: int) -> bool:
    """Tell whether a lease on these terms is possible beside those that are held."""
    mode, taken, alone = wanted.mode, wanted.take, True
    for each in held:
        if each.mode != mode:
            return False
        taken += each.take
        alone = False
    return taken <= permits if mode == "permits" else alone or mode == "shared"


def dump(value: Terms | Notes) -> str | None:
    """Return terms or notes as a store keeps them: JSON of what is not usual, None if all is."""
    usual = PLAIN if isinstance(value, Terms) else NO_NOTES
    unusual = {
        name: each for name, each in as_dict(value).items() if each != getattr(usual, name) and each != []
    }
    return json.dumps(unusual, separators=(",", ":"), sort_keys=True) if unusual else None


@lru_cache(256)
def load_terms(text: str | None) -> Terms:
    """Return what `dump` made of terms."""
    return Terms(**known(Terms, json.loads(text))) if text else PLAIN


def load_notes(text: str | None) -> Notes:
    """Return what `dump` made of notes."""
    if not text:
        return NO_NOTES
    fields = known(Notes, json.loads(text))
    fields["failures"] = load_failures(fields.get("failures", ()))
    if kept := fields.get("kept"):
        fields["kept"] = KeptResult(**known(KeptResult, kept))
    return Notes(**fields)


def known(kind: type, fields: dict[str, Any]) -> dict[str, Any]:
    """Return those of *fields* that *kind* has: a newer release may have written more."""
    names: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    return {name: fields[name] for name in names if name in fields}


def load_failures(values: Iterable[dict[str, Any]]) -> tuple[Failure, ...]:
    """Return failures that were made plain."""
    return tuple(Failure(**each) for each in values)


def load_cycle(values: Iterable[dict[str, Any]]) -> tuple[Link, ...]:
    """Return the links of a deadlock that were made plain."""
    return tuple(Link(**each) for each in values)
