"""What happens to clocks: a client's jumps or runs at another rate, the database's is set.

No client's clock decides anything, so nothing may come of the first two. On SQLite the clock of whoever opens
the file is the database's; so only those who use HTTP have one of their own.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.clock import boot_time
from proof.faults.base import CLIENT, DATABASE_CLOCK, Act, Fault
from proof.faults.scene import Scene
from proof.traffic.client_clock import seen_wrong

if TYPE_CHECKING:
    from proof.stage.stage import Stage
    from proof.traffic.fleet import Process

AT_ITS_PACE = " x1.0"  # libfaketime keeps the last rate that it was told
LONGEST_AWAY = 10.0  # seconds that a database is waited for: what else is wrong with it, others will tell
RIGHT = f"+0{AT_ITS_PACE}"


class OfClientClock(Fault):
    """One client's clock is wrong. It is told to look at it, and the record says whether it saw that."""

    place = CLIENT
    shortest, longest = 2.2, 3.2  # libfaketime looks at its file once in a second, or in two
    picky = 1

    def possible(self, stage: Stage) -> str | None:
        return stage.can("client clock")

    @abstractmethod
    def reading(self, dice: random.Random) -> str:
        """Return what to tell libfaketime."""

    def suits(self, scene: Scene, process: Process) -> bool:
        has_clock_of_store = scene.stage.store == "sqlite" and not process.kind.startswith("http")
        return process.clock is not None and not has_clock_of_store

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        with scene.client(dice, self.suits) as process:
            assert process.clock is not None
            act = Act(process.name, self.reading(dice), again=lambda: process.send("clock"), every=0.2)
            began = boot_time()
            set_clock(process.clock, act.detail)
            try:
                yield act
            finally:
                set_clock(process.clock, RIGHT)
                seen = seen_wrong(process.clock, since=began)
                act.detail += ", not seen" if seen is None else f", seen after {seen - began:.1f} s"


class ClientClockJump(OfClientClock):
    """Its wall clock is set, minutes or days ahead or back, and set right again."""

    name = "client clock jump"

    def reading(self, dice: random.Random) -> str:
        return f"{dice.choice((-1, 1)) * dice.choice((2, 60, 3600, 86400 * 30)):+d}{AT_ITS_PACE}"


class ClientClockRate(OfClientClock):
    """Its wall clock runs too fast or too slow."""

    name = "client clock rate"

    def reading(self, dice: random.Random) -> str:
        return f"+0 x{dice.choice((0.2, 0.9, 1.1, 2.0, 20.0))}"


class DatabaseClockStep(Fault):
    """The clock that decides is set, and set right again: once ahead and once back, in either order.

    It moves the ends of leases, as is documented: whoever believed in one may be wrong. Tokens still rise,
    and fenced data is safe. Small steps: a lease that is given out ahead of time lasts so much longer.
    """

    name = "database clock step"
    place = DATABASE_CLOCK
    excuses = ("belief",)
    shortest, longest = 0.5, 2.0

    def possible(self, stage: Stage) -> str | None:
        return stage.can("clock step")

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        seconds = dice.choice((-1, 1)) * dice.choice((0.5, 1.0, 2.0, 4.0))
        scene.stage.step_database_clock(seconds)
        try:
            yield Act(DATABASE_CLOCK, f"{seconds:+g} s")
        finally:
            scene.stage.step_database_clock(0)
            # A database that another fault has stopped or killed looks at its clock only when it runs again,
            # and what it had read before, it writes then: the step is not over any sooner.
            scene.wait_for_an_answer(LONGEST_AWAY)


def set_clock(file: Path, reading: str) -> None:
    """Set a clock. At once: half a file must not be read."""
    new = file.with_suffix(".new")
    new.write_text(reading)
    new.replace(file)
