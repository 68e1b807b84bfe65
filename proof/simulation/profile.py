"""What kind of weather a seed brings: which faults there are in a run, and how often."""

from __future__ import annotations

import random
from dataclasses import dataclass

from holdfast.core.events import HistoryLevel

REQUEST_TIMEOUT = 2.0  # after so long a client gives a request up: its outcome is unknown
LATEST = 20.0  # no copy of a request is under way for longer
SLOWEST = 0.4  # a request that meets no fault takes no longer, either way
LONGEST_DELAY = 5.0
DRIFT = 0.008  # how wrong the rate of a client's clock may be; the margin covers 1 %


@dataclass(frozen=True, slots=True)
class Profile:
    """Rates are per request or signal; pauses, crashes, breaks and sweeps per second and client or world."""

    lost: float = 0.0  # the request never arrives
    answer_lost: float = 0.0  # it is executed, and its answer never arrives
    late: float = 0.0  # it is executed long after the client gave it up
    repeated: float = 0.0  # it is executed, and once more later
    unavailable: float = 0.0  # refused, certainly not executed
    slow: float = 0.0  # the answer takes a good part of the request timeout, or more
    signal_lost: float = 0.0
    signal_late: float = 0.0
    signal_repeated: float = 0.0
    pauses: float = 0.0
    crashes: float = 0.0
    breaks: float = 0.0
    sweeps: float = 0.05
    abandons: float = 0.0
    shared_owner: bool = False  # the workers of a client are one owner
    impatient: float = 0.2  # how many ask with timeout 0
    history: HistoryLevel = "notable"
    entangled: bool = False  # workers want other keys while they hold one, and so come to deadlocks
    delay: float = 0.0  # how long a plain lock stays shut when a lease expires
    resizes: float = 0.0

    @property
    def attentive(self) -> bool:
        """Whether every client that waits is able to: then nobody may ever lose its turn (P7)."""
        return not (self.stormy or self.pauses or self.crashes)

    @property
    def stormy(self) -> bool:
        """Whether the network does anything to requests."""
        return bool(
            self.lost or self.answer_lost or self.late or self.repeated or self.unavailable or self.slow
        )

    @classmethod
    def drawn(cls, dice: random.Random) -> Profile:
        """Draw a profile. Some are calm, so that what must hold without faults is checked as well."""
        kind = dice.choice(("calm", "pauses", "storm", "storm", "repeats", "everything", "everything"))
        storm = kind in ("storm", "repeats", "everything")
        stops = kind in ("pauses", "everything")

        def rate(on: bool, *choices: float) -> float:
            chosen = dice.choice(choices)
            return chosen if on else 0.0

        shared_owner = dice.random() < 0.25
        return cls(
            lost=rate(storm, 0.0, 0.02, 0.06),
            answer_lost=rate(storm, 0.0, 0.02, 0.06),
            late=rate(storm, 0.0, 0.02, 0.05),
            repeated=rate(kind in ("repeats", "everything"), 0.0, 0.05, 0.15),
            unavailable=rate(storm, 0.0, 0.02, 0.05),
            slow=rate(storm, 0.0, 0.02),
            signal_lost=rate(True, 0.0, 0.1, 1.0),
            signal_late=rate(True, 0.0, 0.1),
            signal_repeated=rate(True, 0.0, 0.1),
            pauses=rate(stops, 0.01, 0.03),
            crashes=rate(stops, 0.0, 0.01, 0.02),
            breaks=rate(True, 0.0, 0.02, 0.06),
            sweeps=rate(True, 0.02, 0.1),
            abandons=rate(True, 0.0, 0.1),
            shared_owner=shared_owner,
            impatient=rate(True, 0.1, 0.4),
            history=dice.choice(("none", "notable", "all")),
            entangled=dice.random() < 0.4 and not shared_owner,
            delay=dice.choice((0.0, 0.0, LONGEST_DELAY)),
            resizes=rate(True, 0.0, 0.03),
        )
