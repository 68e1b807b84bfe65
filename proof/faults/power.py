"""The power goes off: what is on the disk at one moment must have everything that was acknowledged before.

The traffic goes on; it is a copy of the disk that is opened, as it would be after the power is back. That is
for SQLite: servers are killed instead.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from proof.faults.acknowledged import Acknowledged
from proof.faults.base import POWER, Act, Fault
from proof.faults.scene import Scene
from proof.histories.records import Violation

if TYPE_CHECKING:
    from proof.stage.stage import Stage

RULE = "a power cut loses nothing"


class PowerCut(Fault):
    name = "power cut"
    place = POWER
    longest = 0.4

    def possible(self, stage: Stage) -> str | None:
        return stage.can(self.name)

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        disk, told = scene.stage.disk, scene.acknowledged
        assert disk is not None
        told.look()
        copy = scene.stage.cut_power()
        try:
            found = differences(copy, told)
        finally:
            disk.discard(copy)
        scene.violations += found
        yield Act(POWER, f"the disk had {len(told.tokens)} keys and {len(told.updates)} fenced updates")


def differences(path: Path, told: Acknowledged) -> list[Violation]:
    """Open the file at *path*, and tell what is missing of what clients were *told*."""
    try:
        with closing(sqlite3.connect(path)) as copy:
            sound = [row[0] for row in copy.execute("PRAGMA integrity_check")]
            tokens = dict(copy.execute("SELECT lock_key, token FROM holdfast_locks"))
            updates = set(copy.execute("SELECT name, value FROM proof_updates"))
    except sqlite3.DatabaseError as error:
        return [Violation(RULE, "", f"the file cannot be read: {error}")]
    found = [Violation(RULE, "", f"the file is damaged: {line}") for line in sound if line != "ok"]
    for key, token in sorted(told.tokens.items()):
        if tokens.get(key, 0) < token:
            found.append(
                Violation(RULE, key, f"{token} was granted, the disk has {tokens.get(key, 'nothing')}")
            )
    for key, value in sorted(told.updates - updates):
        found.append(Violation(RULE, key, f"the update {value} was acknowledged, and is not on the disk"))
    return found
