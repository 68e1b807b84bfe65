"""What a fault is: a name, a place that it strikes, and a block in which it is at work.

Entering the block of `Fault.inject` does the damage, leaving it undoes it, whatever happened in between. How
long it is at work is not its own affair: the schedule says so, and `nemesis` waits.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from proof.faults.scene import Scene
    from proof.stage.stage import Stage
    from proof.traffic.fleet import Process

MISSING = "missing:"  # so begins why a fault cannot be had on this machine, as it could on another one

# What can be struck. Two faults of a pair strike different places, or different clients.
CLIENT = "client"
LOCK_SERVER = "lock server"
DATABASE = "database"
DATABASE_CLOCK = "database clock"
DISK = "disk"
POWER = "power"
HTTP_NETWORK = "network before the lock server"
DATABASE_NETWORK = "network before the database"


@dataclass
class Act:
    """A fault at work: whom it struck, and what is to be done again and again while it lasts."""

    target: str
    detail: str = ""
    again: Callable[[], None] | None = None
    every: float = 0.1  # seconds


class Fault(ABC):
    """One class of faults."""

    name: ClassVar[str]
    place: ClassVar[str]
    excuses: ClassVar[tuple[str, ...]] = ()
    shortest: ClassVar[float] = 0.3  # seconds at work
    longest: ClassVar[float] = 2.0
    picky: ClassVar[int] = 0  # of two that strike clients, the one that fewer of them suit chooses first

    def possible(self, stage: Stage) -> str | None:
        """Tell why it cannot be had on this store or machine; None: it can."""
        return None

    def suits(self, scene: Scene, process: Process) -> bool:
        """Tell whether it can strike this client."""
        return True

    def places(self, stage: Stage) -> tuple[str, ...]:
        """Tell where it can strike."""
        return (self.place,)

    @abstractmethod
    def inject(self, scene: Scene, place: str, dice: random.Random) -> AbstractContextManager[Act]:
        """Do the damage, and undo it at the end of the block. All choices are the dice's."""

    def __repr__(self) -> str:
        return f"<{self.name}>"
