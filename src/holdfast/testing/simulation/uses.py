"""What the keys of a run are used for: plain locks, readers and writers, semaphores, operations."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from holdfast.core.family import Outcome, Terms

Kind = Literal["plain", "shared", "semaphore", "operation"]
KINDS: tuple[Kind, ...] = ("plain", "plain", "shared", "semaphore", "operation")
SIZES = (1, 2, 3, 4)


@dataclass(slots=True)
class Use:
    """What one key is used for. Whoever asks believes the number of permits that an operator said last."""

    kind: Kind
    permits: int
    delay: float

    @classmethod
    def drawn(cls, dice: random.Random, delay: float) -> Use:
        """Draw a use."""
        return cls(dice.choice(KINDS), dice.choice(SIZES), delay)

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
        return Terms(delay=self.delay)

    def outcome(self, dice: random.Random) -> Outcome | None:
        """Return how an attempt at an operation ends; None if it does not say."""
        roll = dice.random()
        if self.kind != "operation" or roll < 0.1:
            return None
        if roll < 0.5:
            return Outcome(False, "it went wrong")
        return Outcome(True, f'"{dice.randrange(10**6)}"')
