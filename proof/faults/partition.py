"""One client is cut off from everybody else, and from nothing but the network: it runs on, and believes."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from proof.faults.base import CLIENT, MISSING, Act, Fault
from proof.faults.namespaces import Cable, End, missing
from proof.faults.scene import Scene
from proof.traffic.fleet import wait_until

if TYPE_CHECKING:
    from proof.stage.stage import Stage
    from proof.traffic.fleet import Process

_missing = functools.cache(missing)


class PartitionClient(Fault):
    """The cable of a client that lives in a network of its own is pulled, and plugged in again."""

    name = "partition a client"
    place = CLIENT
    # Longer than clients wait for an answer (`stage.HTTP_OPTIONS`), so that something fails. Not by far: what
    # is under way arrives when the kernel tries again, up to 7 s later, and after longer ones 14 s later.
    shortest, longest = 2.8, 5.0
    picky = 2

    def possible(self, stage: Stage) -> str | None:
        why = _missing()
        return f"{MISSING} {why}" if why else None

    def suits(self, scene: Scene, process: Process) -> bool:
        return scene.lives_apart(process)

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        end: End = dice.choice(("door", "client"))
        assert scene.cable is not None, "nobody lives apart"
        with scene.client(dice, self.suits) as process, scene.cable.pulled(end):
            yield Act(process.name, f"the cable was pulled at the {end}'s end")


@contextmanager
def one_lives_apart(scene: Scene, dice: random.Random) -> Iterator[None]:
    """Have one client in a network of its own for the time of the block: for that, it must be a new one."""
    stage = scene.stage
    ports = [stage.http_proxy.port, *([stage.proxy.port] if stage.proxy else [])]

    def needs_network(_: Scene, process: Process) -> bool:
        # Not one with a clock of its own: there are few, and both faults may be had at the same time.
        return process.clock is None and (stage.proxy is not None or process.kind.startswith("http"))

    with Cable(*ports) as cable:
        with scene.client(dice, needs_network) as process, cable.inside():
            new = scene.exchange(process, "moved into a network of its own")
            scene.apart = new.name
        wait_until(lambda: new.has_begun or not new.alive)  # else there would be nothing to cut off
        scene.cable = cable
        try:
            yield
        finally:
            # Whoever lives there cannot stay: the network goes, and it has yet to finish what it does.
            scene.cable = None
            with scene.client(dice, Scene.lives_apart) as process:
                scene.exchange(process, "moved back")
