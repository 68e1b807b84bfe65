"""Run one seed from the first request to the last, and say what there was in it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.core.requests import Break, Resize, Sweep
from holdfast.core.settings import Settings
from holdfast.stores.base import micros
from proof.simulation.invariants import Checker
from proof.simulation.machine import Machine
from proof.simulation.network import Network
from proof.simulation.observed import ObservedStore, StoreName, open_observed
from proof.simulation.profile import LATEST, LONGEST_DELAY, SLOWEST, Profile
from proof.simulation.step import EPOCH, Violation
from proof.simulation.uses import SIZES, Use
from proof.simulation.watch import Watch
from proof.simulation.worker import LONGEST_TTL, Worker
from proof.simulation.world import World

SETTINGS = Settings()

# What may still be under way when the faults end, and then what the protocol says a dead holder, a dead
# waiter and a dead winner cost.
DRAIN = LATEST + LONGEST_TTL + LONGEST_DELAY + SETTINGS.patience + SETTINGS.claim


@dataclass(slots=True)
class Report:
    """What happened in a run."""

    seed: int
    store: StoreName
    trace_hash: str
    profile: Profile
    counts: Counter[str] = field(default_factory=Counter)


class SimulationFailed(AssertionError):
    """A seed that breaks an invariant, with all one needs to look into it."""

    def __init__(self, seed: int, store: StoreName, invariant: str, text: str) -> None:
        super().__init__(seed, store, invariant, text)  # all of them: it travels between processes
        self.seed = seed
        self.store = store
        self.invariant = invariant
        self.text = text

    def __str__(self) -> str:
        return self.text


def failed(
    seed: int, store: StoreName, world: World, violation: Violation, *, fleet: str = "locks"
) -> SimulationFailed:
    """Return the error of a seed that breaks an invariant, with its trace and how to replay it."""
    lines = "\n".join(f"  {line}" for line in world.trace())
    text = (
        f"seed {seed} on {store} breaks «{violation.invariant}» at {world.now:.4f} s\n"
        f"{lines}\n{violation.text}\n"
        f"replay: make simulate START={seed} SEEDS=1 STORE={store} FLEET={fleet}"
    )
    return SimulationFailed(seed, store, violation.invariant, text)


def simulate(
    seed: int,
    *,
    store: StoreName = "memory",
    clients: int = 5,
    keys: int = 3,
    duration: float = 120.0,
    folder: Path | None = None,
    make_store: Callable[[Profile], ObservedStore] | None = None,
) -> Report:
    """Run one seed; raise `SimulationFailed` if an invariant does not hold.

    *folder* is where a store keeps its files, reused from run to run. *make_store* gives the checker
    another store to judge.
    """
    if store == "sqlite" and folder is None and make_store is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-") as temporary:
            return simulate(
                seed, store=store, clients=clients, keys=keys, duration=duration, folder=Path(temporary)
            )
    world = World(seed)
    profile = Profile.drawn(world.dice)
    opened = make_store(profile) if make_store else open_observed(store, profile.history, folder or Path())
    try:
        fleet = Fleet(world, profile, opened, clients=clients, keys=[f"key:{n}" for n in range(keys)])
        fleet.run(duration)
    except Violation as violation:
        raise failed(seed, store, world, violation) from violation
    finally:
        opened.close()
    return Report(seed, store, world.trace_hash(), profile, world.counts)


class Fleet:
    """All clients of a run, and those who do not hold locks: the weather, an operator, a sweeper."""

    def __init__(
        self, world: World, profile: Profile, store: ObservedStore, *, clients: int, keys: list[str]
    ) -> None:
        self._world = world
        self._profile = profile
        self._keys = keys
        self._uses = {key: Use.drawn(world.dice, profile.delay) for key in keys}
        self._checker = Checker(world.counts)
        self._network = Network(world, profile, store, self._checker, keys)
        self._machines: dict[str, Machine] = {}
        self._workers: dict[str, list[Worker]] = {}
        self._swept_up_to = ""
        self._watch = Watch(world, self._network, self._machines, SETTINGS, strict=profile.attentive)
        for number in range(clients):
            name = f"c{number}"
            self._boot(name, 1)
            self._recur(profile.pauses, self._pause, name)
            self._recur(profile.crashes, self._crash, name)
        self._recur(profile.breaks, self._break)
        self._recur(profile.sweeps, self._sweep)
        self._recur(profile.resizes, self._resize)

    def run(self, duration: float) -> None:
        """Let them work, then end all faults and see whether everything comes to its end (P8)."""
        world = self._world
        world.run(duration)
        world.log("no more faults, no more work")
        world.calm = True
        for name, machine in self._machines.items():
            machine.resume()
            for worker in self._workers[name]:
                if not machine.dead:
                    machine.later(0.0, worker.hurry)
        world.run(duration + DRAIN + SLOWEST)
        self._watch.strict = False
        now = micros(EPOCH + world.now)
        for key in self._keys:
            state = self._network.state(key)
            held = [attempt for attempt, hold in state.holds.items() if hold.end > now]
            waiting = [attempt for attempt, ticket in state.tickets.items() if ticket.end > now]
            if held or waiting:
                raise Violation("P8 liveness", f"{key} is not free in the end: {held} hold, {waiting} wait")
        for name, machine in self._machines.items():
            if not machine.dead and not all(worker.idle for worker in self._workers[name]):
                raise Violation("P8 liveness", f"a plan of {machine.name} does not end")

    def _boot(self, name: str, life: int) -> None:
        machine = Machine(name, life, self._world, self._network, self._checker, SETTINGS)
        self._machines[name] = machine
        workers = self._workers[name] = [
            Worker(
                machine,
                machine.name if self._profile.shared_owner else None,
                self._uses,
                self._profile,
            )
            for _ in range(1 + self._world.dice.randrange(2))
        ]
        for worker in workers:
            worker.colleagues = [each for each in workers if each is not worker]

        def on_lost(kept: object) -> None:
            for worker in workers:
                worker.lost(kept)  # type: ignore[arg-type]

        machine.on_lost = on_lost
        for worker in workers:
            worker.begin()

    # What happens now and then.

    def _recur(self, rate: float, call: Callable[..., None], *args: str) -> None:
        if rate:
            self._world.later(self._world.dice.expovariate(rate), self._happen, rate, call, args)

    def _happen(self, rate: float, call: Callable[..., None], args: tuple[str, ...]) -> None:
        if not self._world.calm:
            call(*args)
            self._recur(rate, call, *args)

    def _pause(self, name: str) -> None:
        self._machines[name].pause(self._world.dice.choice((0.5, 3.0, 7.0, 20.0)) * self._world.dice.random())

    def _crash(self, name: str) -> None:
        machine = self._machines[name]
        if not machine.dead:
            machine.crash()
            life = machine.client.pid + 1
            self._world.later(self._world.dice.uniform(0.1, 10.0), self._restart, name, life)

    def _restart(self, name: str, life: int) -> None:
        if not self._world.calm:
            self._boot(name, life)

    def _break(self) -> None:
        key = self._world.dice.choice(self._keys)
        seen = [hold.token for hold in self._network.state(key).holds.values()]
        token = self._world.dice.choice(seen) if seen and self._world.dice.random() < 0.5 else None
        self._network.execute(Break(key, by="operator", reason="stuck", token=token))

    def _resize(self) -> None:
        semaphores = [key for key, use in self._uses.items() if use.kind == "semaphore"]
        if semaphores:
            key = self._world.dice.choice(semaphores)
            self._uses[key].permits = self._world.dice.choice(SIZES)
            self._network.execute(Resize(key, self._uses[key].permits, by="operator"))

    def _sweep(self) -> None:
        idle = self._world.dice.choice((0.5, 2.0, 3600.0))
        swept = self._network.execute(
            Sweep(limit=len(self._keys), after=self._swept_up_to, idle=idle, keep_history=30.0)
        )
        self._swept_up_to = swept.after or ""
