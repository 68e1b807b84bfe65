"""How far an exploration goes, and the round numbers in which its time is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.core.backoff import Backoff
from holdfast.core.settings import Settings

Fault = Literal[
    "lost request",
    "late request",
    "lost answer",
    "late answer",
    "copy",
    "unavailable",
    "lost signal",
    "crash",
    "pause",
    "interrupt",
    "break",
    "clock forward",
    "clock back",
]

# What the network can do to one request. A late one may also never arrive, so it stands for a lost one too;
# the lost ones are for whoever wants fewer states.
FATES: tuple[Fault, ...] = (
    "lost request",
    "late request",
    "lost answer",
    "late answer",
    "copy",
    "unavailable",
)
FAULTS: tuple[Fault, ...] = (
    "late request",
    "late answer",
    "copy",
    "unavailable",
    "lost signal",
    "crash",
    "pause",
    "interrupt",
    "break",
    "clock forward",
    "clock back",
)
FEW_FAULTS: tuple[Fault, ...] = ("lost request", "lost answer", "copy", "crash", "clock forward")

# Whole seconds, and as few different ones as the settings allow: then instants coincide, and so do states.
# Without a margin trust ends exactly when the lease does, so that no flaw can hide in it.
SETTINGS = Settings(
    ttl=4.0,
    margin=0.0,
    renew_at=0.5,
    heartbeat=2.0,
    claim=3.0,
    patience=4.0,
    release_timeout=4.0,
    backoff=Backoff(first=2.0, most=2.0),
)
ROLL = 0.0  # every dice roll: a backoff is one second
REQUEST_TIMEOUT = 2  # after so long a client gives a request up: its outcome is unknown
LATEST = 5  # nothing is under way for longer, which is much less than an ended attempt is remembered
LONGEST_PAUSE = 6  # longer than a lease and than the patience of a ticket
CLOCK_STEP = 3  # by how much the store's clock is set
LONGEST_WAIT = 6.0  # seconds until somebody who waits gives up


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is explored: everything that so many clients can do in so many turns with so many faults."""

    clients: int = 2
    keys: int = 1
    turns: int = 2  # how often each client asks for a lock, or enters one again
    faults: int = 1  # in one run, of any kinds
    kinds: tuple[Fault, ...] = FAULTS
    waits: tuple[float, ...] = (LONGEST_WAIT,)  # how long somebody waits; 0: one try
    deepest: int = 2  # holds of one client at once
    nested: bool = False  # whoever holds one key may want the other, which can end in a deadlock
    hands: bool = False  # a client may pass what it holds to another thread of its own, which releases it
    depth: int | None = None  # how many moves a run has at most; None: until nothing new comes
    limit: int | None = None  # how many states are looked for; None: all

    def __post_init__(self) -> None:
        if not (1 <= self.clients <= 9 and 1 <= self.keys <= 9):
            raise ValueError(f"{self.clients} clients and {self.keys} keys: there must be 1 to 9 of each")

    @property
    def symmetric(self) -> bool:
        """Whether clients are alike, and keys. The victim of a deadlock may be chosen by its name."""
        return not self.nested

    @property
    def names(self) -> tuple[str, ...]:
        """The keys."""
        return tuple(f"key:{chr(ord('a') + number)}" for number in range(self.keys))
