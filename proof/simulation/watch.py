"""What must hold as time passes, and not only step by step: nobody loses its turn, nothing stands still."""

from __future__ import annotations

from holdfast.core.family import fits
from holdfast.core.settings import Settings
from holdfast.stores.base import micros
from proof.simulation.machine import Machine
from proof.simulation.network import Network
from proof.simulation.observed import State
from proof.simulation.profile import SLOWEST
from proof.simulation.step import EPOCH, Violation
from proof.simulation.world import World


class Watch:
    """Looks at each key that was touched, and at what became of those who wait.

    With *strict*, requests meet no faults and clients never stop. Signals may still be lost: the
    heartbeats make up for them.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        machines: dict[str, Machine],
        settings: Settings,
        *,
        strict: bool,
    ) -> None:
        self.strict = strict
        self._world = world
        self._network = network
        self._machines = machines
        self._before: dict[str, State] = {}
        # A heartbeat may have to wait for the answer to the one before; then it goes there.
        self._grace = micros(settings.heartbeat * 1.01 + 4 * SLOWEST)
        network.watch(self.look)

    def look(self, key: str) -> None:
        """Look at a key after a request."""
        state = self._network.state(key)
        before, self._before[key] = self._before.get(key), state
        if not self.strict:
            return
        now = micros(EPOCH + self._world.now)
        if before is not None:
            self._turns(key, before, state, now)
        for name in self._network.states:
            self._stands_still(name, now)

    def _turns(self, key: str, before: State, state: State, now: int) -> None:
        """P7: a live waiter does not lose its place, nor what it was handed."""
        for attempt, hold in before.holds.items():
            if (
                not hold.claimed
                and hold.end <= now
                and state.holds.get(attempt) != hold
                and self._waits(attempt)
            ):
                raise Violation("P7 turn", f"{attempt} was handed {key}, and did not come for it in time")
        for attempt, ticket in before.tickets.items():
            gone = attempt not in state.tickets and attempt not in state.holds
            if ticket.end <= now and gone and self._waits(attempt):
                raise Violation("P7 turn", f"{attempt} waits for {key}, and its ticket died")

    def _stands_still(self, key: str, now: int) -> None:
        """P8: a lease that is over is passed on, signal or no signal."""
        state = self._network.state(key)
        if not state.tickets:
            return
        over = _fits_from(state, now)
        if over + self._grace < now:
            waiting = [a for a, ticket in state.tickets.items() if ticket.end > now and self._waits(a)]
            if waiting:
                raise Violation("P8 liveness", f"{key} is over since {over}, and {waiting} still wait")

    def _waits(self, attempt: str) -> bool:
        return any(attempt in machine.keeper.tickets for machine in self._machines.values())


def _fits_from(state: State, now: int) -> int:
    """Return from when on the first live ticket fits beside what is held, if nobody else does anything."""
    live = [ticket for ticket in state.tickets.values() if ticket.end > now]
    dead = max((ticket.end for ticket in state.tickets.values() if ticket.end <= now), default=0)
    since = max(dead, state.shut_until)
    if not live:
        return since
    for end in sorted({0, *(hold.end for hold in state.holds.values())}):
        held = {hold.token: hold.terms for hold in state.holds.values() if hold.end > end}
        if fits(live[0].terms, held.values(), state.permits):
            return max(since, end)
    return now
