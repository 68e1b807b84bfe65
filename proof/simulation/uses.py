"""What the keys of a run are used for: plain locks, readers and writers, semaphores, operations."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from holdfast.core.family import Outcome, Terms

Kind = Literal["plain", "shared", "semaphore", "operation"]
KINDS: tuple[Kind, ...] = ("plain", "plain", "shared", "semaphore", "operation")
SIZES = (1, 2, 3, 4)
AT_LEAST = 2.0  # of some plain locks: longer than most work takes
KEEP = 4.0  # of the results of some operations


@dataclass(slots=True)
class Use:
    """What one key is used for. Whoever asks believes the number of permits that an operator said last."""

    kind: Kind
    permits: int
    delay: float
    at_least: float = 0.0
    keep: float = 0.0

    @classmethod
    def drawn(cls, dice: random.Random, delay: float) -> Use:
        """Draw a use."""
        kind, size = dice.choice(KINDS), dice.choice(SIZES)
        # What has no permits has no use for their number.
        at_least = AT_LEAST if kind == "plain" and size == 1 else 0.0
        keep = KEEP if kind == "operation" and size > 2 else 0.0
        return cls(kind, size, delay, at_least, keep)

    def terms(self, dice: random.Random) -> Terms:
        """Return the terms on which somebody asks."""
        match self.kind:
            case "shared":
                return Terms(mode="shared" if dice.random() < 0.7 else "exclusive")
            case "semaphore":
                believed = 0 if dice.random() < 0.1 else self.permits
                return Terms(mode="permits", take=dice.choice((1, 1, 1, 2)), permits=believed)
            case "operation":
                return Terms(operation=True, max_attempts=dice.choice((0, 0, 3)))
        return Terms(delay=self.delay, at_least=self.at_least)

    def outcome(self, dice: random.Random) -> Outcome | None:
        """Return how an attempt at an operation ends; None if it does not say."""
        roll = dice.random()
        if self.kind != "operation" or roll < 0.1:
            return None
        if roll < 0.5:
            return Outcome(False, "it went wrong")
        return Outcome(True, f'"{dice.randrange(10**6)}"', self.keep)
