"""Run one seed of a fleet of engines, from the first offer until everything is done."""

from __future__ import annotations

import tempfile
from pathlib import Path

from holdfast.core.cluster import Offer, OfferedWork
from holdfast.core.requests import Break, Sweep
from proof.simulation.cluster.engine import TTL, TYPE, Engine
from proof.simulation.cluster.network import STEPS, ClusterNetwork
from proof.simulation.invariants import Checker
from proof.simulation.machine import Machine
from proof.simulation.observed import ObservedStore, StoreName, open_observed
from proof.simulation.profile import LATEST, Profile
from proof.simulation.runner import SETTINGS, Report, failed
from proof.simulation.step import Violation
from proof.simulation.uses import Use
from proof.simulation.worker import Worker
from proof.simulation.world import World

CALM = 40.0  # after what may still be under way: time to take over what is left, and to do it
DRAINS = 0.02  # of an engine, a second


def simulate_cluster(
    seed: int,
    *,
    store: StoreName = "memory",
    engines: int = 4,
    works: int = 8,
    duration: float = 60.0,
    folder: Path | None = None,
) -> Report:
    """Run one seed; raise `SimulationFailed` if an invariant does not hold."""
    if store == "sqlite" and folder is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-") as temporary:
            return simulate_cluster(
                seed, store=store, engines=engines, works=works, duration=duration, folder=Path(temporary)
            )
    world = World(seed)
    profile = Profile.drawn(world.dice)
    opened = open_observed(store, profile.history, folder or Path())
    try:
        fleet = ClusterFleet(world, profile, opened, engines, [f"{TYPE}:{n}" for n in range(works)])
        fleet.run(duration)
    except Violation as violation:
        raise failed(seed, store, world, violation, fleet="engines") from violation
    finally:
        opened.close()
    return Report(seed, store, world.trace_hash(), profile, world.counts)


class ClusterFleet:
    """All engines, and those who make their lives hard: the weather, operators, intruders."""

    def __init__(
        self, world: World, profile: Profile, store: ObservedStore, engines: int, keys: list[str]
    ) -> None:
        self._world = world
        self._profile = profile
        self._keys = keys
        self._checker = Checker(world.counts)
        self._network = ClusterNetwork(world, profile, store, self._checker, keys)
        self._machines: dict[str, Machine] = {}
        self._engines: dict[str, Engine] = {}
        self._offers = {key: world.dice.choice((0, 0, 2, 5)) for key in keys}  # how often it may be tried
        for number in range(engines):
            self._boot(f"engine{number}", 1)
        if world.dice.random() < 0.4:
            self._intrude()
        for key in keys:
            self._offer_later(key)

    def run(self, duration: float) -> None:
        """Let them work, then end all faults, and see whether everything gets done (P8)."""
        world = self._world
        world.run(duration)
        world.log("no more faults")
        world.calm = True
        for machine in list(self._machines.values()):
            machine.resume()
        if all(machine.dead for name, machine in self._machines.items() if name in self._engines):
            self._boot("rescue", 1)
        for key in self._keys:
            self._offer(key)
        world.run(duration + LATEST + CALM)
        picture = self._network.picture()
        for key in self._keys:
            work, done = picture.works[key], len(self._network.effects[key])
            ended = work.state == "completed" or (work.state == "failed" and self._offers[key])
            if not ended or (work.state == "completed" and done != STEPS):
                raise Violation("P8 liveness", f"in the end there is {work}, with {done} of {STEPS} steps")
            world.counts[f"in the end {work.state}"] += 1

    def _boot(self, name: str, life: int) -> None:
        world = self._world
        machine = Machine(name, life, world, self._network, self._checker, SETTINGS)
        engine = Engine(machine, world.dice.choice((1, 2, 5)), lambda key: len(self._network.effects[key]))
        machine.on_lost = engine.lost
        self._machines[name], self._engines[name] = machine, engine
        engine.begin()
        self._recur(name, self._profile.pauses, self._pause)
        self._recur(name, self._profile.crashes, self._crash)
        self._recur(name, DRAINS, self._drain)
        if name == "engine0":
            self._recur(name, self._profile.breaks, self._break)
            self._recur(name, self._profile.sweeps, self._sweep)

    def _intrude(self) -> None:
        """Have somebody take the same keys by plain locks."""
        machine = Machine("intruder", 1, self._world, self._network, self._checker, SETTINGS)
        self._machines["intruder"] = machine
        uses = {key: Use("plain", 1, 0.0) for key in self._keys}
        worker = Worker(machine, "intruder", uses, self._profile)
        machine.on_lost = worker.lost
        worker.begin()

    def _offer_later(self, key: str) -> None:
        self._world.later(self._world.dice.uniform(0.0, 30.0), self._offer, key)

    def _offer(self, key: str) -> None:
        work = OfferedWork(key, max_tries=self._offers[key])
        answer = self._network.execute(Offer((work,)))
        self._world.counts["offers known" if not answer.new[0] else "offers"] += 1

    def _recur(self, name: str, rate: float, call: object) -> None:
        if rate:
            self._world.later(
                self._world.dice.expovariate(rate), self._happen, name, self._machines[name], rate, call
            )

    def _happen(self, name: str, machine: Machine, rate: float, call: object) -> None:
        if not self._world.calm and self._machines[name] is machine and not machine.dead:
            call(name)  # type: ignore[operator]
            self._recur(name, rate, call)

    def _pause(self, name: str) -> None:
        dice = self._world.dice
        self._machines[name].pause(dice.choice((0.5, TTL, 2 * TTL, 20.0)) * dice.random())

    def _crash(self, name: str) -> None:
        machine = self._machines[name]
        machine.crash()
        self._world.later(self._world.dice.uniform(0.1, 10.0), self._restart, name, machine.client.pid + 1)

    def _restart(self, name: str, life: int) -> None:
        self._boot(name, life)

    def _drain(self, name: str) -> None:
        if not self._machines[name].paused:
            self._engines[name].drain()

    def _break(self, name: str) -> None:
        self._network.execute(Break(self._world.dice.choice(self._keys), by="operator", reason="stuck"))

    def _sweep(self, name: str) -> None:
        # Longer than a request can be late: a late copy of a Join must still find that its instance is gone.
        idle = self._world.dice.choice((LATEST + 1.0, 3600.0))
        self._network.execute(Sweep(limit=100, idle=idle))
