"""Does what a schedule of faults says, writes down when it did, and leaves everything well.

Faults heal at the end of their blocks, whatever happens in between, and two at a time are two threads: so the
start of a lock server that finds no database can go on until the database is back.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from holdfast.clock import boot_time
from proof.faults import ALL, Fault, NobodyLeft, Scene
from proof.faults.partition import PartitionClient, one_lives_apart
from proof.faults.schedule import Planned, Step, schedule
from proof.histories.records import Injected, Violation

if TYPE_CHECKING:
    from proof.stage.stage import Stage
    from proof.traffic.fleet import Fleet

LONGEST_PEACE = 6.0  # seconds; so long after a step that took much longer than planned


class Nemesis:
    """What happens to a stage and a fleet, from a seed."""

    def __init__(
        self, stage: Stage, fleet: Fleet, *, seed: int, quick: bool, faults: Sequence[Fault] = ALL
    ) -> None:
        self.scene = Scene(stage, fleet)
        self.impossible: dict[str, str] = {}  # class → why not
        self.now = "peace"  # for those who watch
        self._seed, self._quick = seed, quick
        self._faults: dict[Fault, tuple[str, ...]] = {}
        for fault in faults:
            if why := fault.possible(stage):
                self.impossible[fault.name] = why
            else:
                self._faults[fault] = fault.places(stage)
        self._over = threading.Event()
        self._steps = 0
        self._mutex = threading.Lock()

    @property
    def injected(self) -> list[Injected]:
        """All that was done so far."""
        return self.scene.injected

    @property
    def violations(self) -> list[Violation]:
        """What faults have seen that must not be: something that was acknowledged is not on the disk."""
        return self.scene.violations

    def run(self, seconds: float) -> list[Injected]:
        """Inject faults for so many seconds, then wait until everything is well again."""
        deadline = boot_time() + seconds
        self._over.clear()
        with ExitStack() as stack:
            stack.push(self._leave_well)
            if any(isinstance(fault, PartitionClient) for fault in self._faults):
                stack.enter_context(one_lives_apart(self.scene, random.Random(f"apart {self._seed}")))
            late = 0.0
            for step in schedule(self._possible(), self._seed, quick=self._quick):
                peace = min(step.peace + late, LONGEST_PEACE)
                if boot_time() + peace + step.seconds > deadline:
                    break
                self._over.wait(peace)
                late = self._take(step)
                self.scene.check_clients()
            self._over.wait(max(0.0, deadline - boot_time()))
        return sorted(self.injected, key=lambda one: one.began)

    def _possible(self) -> dict[Fault, tuple[str, ...]]:
        """Return the faults for which there is somebody to strike, and where each strikes."""
        for fault in list(self._faults):
            if not any(fault.suits(self.scene, process) for process in self.scene.fleet.workers):
                self.impossible[fault.name] = "there is no such client"
                del self._faults[fault]
        return self._faults

    def wait_until_healthy(self) -> None:
        """Wait until the database answers and the lock server is ready."""
        self.scene.wait_until_healthy()

    def _leave_well(self, _: object, error: BaseException | None, __: object) -> None:
        """Heal whatever an error may have left, or see that nothing is left."""
        if error is None:
            self.wait_until_healthy()
        else:
            with suppress(Exception):  # the first one counts
                self.scene.stage.heal()

    def _take(self, step: Step) -> float:
        """Inject what a step says; return by how much it took longer than planned."""
        began = boot_time()
        self._steps += 1
        pair = self._steps if len(step.faults) > 1 else 0
        self.now = " + ".join(each.fault.name for each in step.faults)
        errors: list[BaseException] = []
        # A daemon: if we are interrupted while one of them hangs, the process can still end.
        threads = [
            threading.Thread(target=self._inject, args=(planned, pair, errors), daemon=True, name=self.now)
            for planned in step.faults
        ]
        try:
            for thread in threads:
                thread.start()
        finally:
            try:
                for thread in threads:
                    thread.join()
            except BaseException:
                self._over.set()  # nobody waits any longer; what was done is undone
                for thread in threads:
                    thread.join(30.0)
                raise
        self.now = "peace"
        if errors:
            raise BaseExceptionGroup(f"faults failed: {step}", errors) if len(errors) > 1 else errors[0]
        return max(0.0, boot_time() - began - step.seconds)

    def _inject(self, planned: Planned, pair: int, errors: list[BaseException]) -> None:
        try:
            self._over.wait(planned.after)
            dice = random.Random(planned.seed)
            began = boot_time()
            with planned.fault.inject(self.scene, planned.place, dice) as act:
                deadline = boot_time() + planned.seconds
                while (left := deadline - boot_time()) > 0 and not self._over.is_set():
                    if act.again is not None:
                        act.again()
                        left = min(left, act.every)
                    self._over.wait(left)
            fault = planned.fault
            done = Injected(fault.name, act.target, began, boot_time(), pair, act.detail, fault.excuses)
            with self._mutex:
                self.injected.append(done)
        except NobodyLeft:
            return  # not in this pair, then
        except BaseException as error:
            errors.append(error)
            self._over.set()
