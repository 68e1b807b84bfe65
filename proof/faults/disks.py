"""What happens to the disk that the store is on: slow, failing, full."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from proof.faults.base import DISK, Act, Fault
from proof.faults.scene import Scene
from tests.servers import MariaDBServer, PostgresServer

if TYPE_CHECKING:
    from proof.stage.stage import Stage


LONGEST_UNNOTICED = 8.0  # seconds that a disk is full before it matters


class OfDisk(Fault):
    place = DISK

    def possible(self, stage: Stage) -> str | None:
        return stage.can(self.name)


class SlowFsync(OfDisk):
    name = "slow fsync"
    longest = 2.5

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        seconds = dice.choice((0.02, 0.1, 0.4, 1.0))
        scene.stage.slow_fsync(seconds)
        try:
            yield Act(DISK, f"{seconds:g} s each")
        finally:
            scene.stage.slow_fsync(0)


class FailingFsync(OfDisk):
    """Servers die of it, as they should: what they have written may be on the disk or not."""

    name = "failing fsync"
    longest = 1.0

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        scene.stage.fail_fsync(True)
        try:
            yield Act(DISK)
        finally:
            scene.stage.fail_fsync(False)
            scene.revive()


class FullDisk(OfDisk):
    """Nothing more can be written. Some servers die of it, others wait for room."""

    name = "full disk"
    shortest, longest = 0.6, 1.5

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        disk = scene.stage.disk
        assert disk is not None
        try:
            disk.fill()
            yield Act(DISK, _until_noticed(scene.stage.database))
        finally:
            disk.empty()
            scene.revive()


def _until_noticed(database: PostgresServer | MariaDBServer | None) -> str:
    """Wait until MariaDB needs room: it makes files larger in advance, and goes on writing for a while.

    The others need some at once. Return what is to be noted: if it never came to that, nothing was struck.
    """
    if not isinstance(database, MariaDBServer):
        return ""
    known, began = _complaints(database), time.monotonic()
    while time.monotonic() < began + LONGEST_UNNOTICED:
        if _complaints(database) > known:
            return f"noticed after {time.monotonic() - began:.1f} s"
        time.sleep(0.05)
    return "not noticed: no file had to grow"


def _complaints(database: MariaDBServer) -> int:
    return database.log.read_bytes().count(b"' is full")
