"""What happens to processes that use locks: killed, stopped, forked, cancelled, interrupted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from proof.faults.base import CLIENT, Act, Fault
from proof.faults.moments import stop
from proof.faults.scene import Scene

if TYPE_CHECKING:
    from proof.traffic.fleet import Process


class KillClient(Fault):
    """It is gone with all that it held and waited for; another takes its place later."""

    name = "kill client"
    place = CLIENT
    longest = 1.0

    def suits(self, scene: Scene, process: Process) -> bool:
        return not scene.lives_apart(process)  # the only one that can be cut off stays

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        with scene.client(dice, self.suits) as process:
            had = stop(scene, process, dice)
            process.kill()
            try:
                yield Act(process.name, had)
            finally:
                scene.replace(process)


class PauseClient(Fault):
    """It stands still for longer than its leases last, and then goes on as if nothing had happened."""

    name = "pause client"
    place = CLIENT
    shortest, longest = 1.6, 2.6

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        with scene.client(dice) as process:
            try:
                yield Act(process.name, stop(scene, process, dice))
            finally:
                process.go_on()


class Told(Fault):
    """Something that a worker does to itself when it is told to, again and again."""

    place = CLIENT
    command: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]] = ("sync", "async", "http-sync", "http-async")

    def suits(self, scene: Scene, process: Process) -> bool:
        return process.kind in self.kinds

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        with scene.client(dice, self.suits) as process:
            yield Act(process.name, again=lambda: self._tell(process), every=dice.uniform(0.1, 0.3))

    def _tell(self, process: Process) -> None:
        if process.alive:
            process.send(self.command)


class ForkClient(Told):
    """A child has copies of its connections and leases; the parent goes on."""

    name = "fork"
    command = "fork"

    def suits(self, scene: Scene, process: Process) -> bool:
        # libfaketime has a mutex that a child inherits locked: 13 of 30 children hung, without any of ours.
        return process.clock is None


class CancelClient(Told):
    """A task is cancelled in the middle of whatever it awaits."""

    name = "cancel"
    command = "cancel"
    kinds = ("async", "http-async")


class InterruptClient(Told):
    """Ctrl-C is pressed in the middle of whatever it does."""

    name = "interrupt"
    command = "interrupt"
    kinds = ("sync", "http-sync")
