"""What happens to the processes between a client and its locks: the lock server and the database."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from proof.faults.base import DATABASE, LOCK_SERVER, Act, Fault
from proof.faults.scene import Scene

if TYPE_CHECKING:
    from proof.stage.stage import Stage


class KillLockServer(Fault):
    name = "kill lock server"
    place = LOCK_SERVER
    longest = 1.2

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        scene.stage.lock_server.kill()
        try:
            yield Act(LOCK_SERVER)
        finally:
            scene.start_lock_server()


class PauseLockServer(Fault):
    """It stands still, and answers late: what it was asked before is then done after all."""

    name = "pause lock server"
    place = LOCK_SERVER
    shortest, longest = 0.5, 3.0

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        scene.stage.lock_server.send(signal.SIGSTOP)
        try:
            yield Act(LOCK_SERVER)
        finally:
            scene.stage.lock_server.send(signal.SIGCONT)


class OfDatabase(Fault):
    """A fault of the processes of the database. SQLite has none."""

    place = DATABASE

    def possible(self, stage: Stage) -> str | None:
        return "the store is a file, and has no process of its own" if stage.database is None else None


class KillDatabase(OfDatabase):
    name = "kill database"
    longest = 1.0

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        database = scene.stage.database
        assert database is not None
        database.kill()
        try:
            yield Act(DATABASE)
        finally:
            scene.revive()  # once its standby follows it again: until then it commits nothing


class PauseDatabase(OfDatabase):
    """All its processes stand still, mostly for longer than leases last; connections stay open."""

    name = "pause database"
    shortest, longest = 0.8, 2.5

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        database = scene.stage.database
        assert database is not None
        database.pause()
        try:
            yield Act(DATABASE)
        finally:
            database.resume()


class PromoteStandby(OfDatabase):
    """The database is killed for good, and its standby takes over with everything that was acknowledged."""

    name = "promote standby"
    longest = 0.6

    def possible(self, stage: Stage) -> str | None:
        return super().possible(stage) or stage.can("promotion")

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        scene.stage.promote()
        try:
            yield Act(DATABASE)
        finally:
            scene.revive()  # its new standby, too
