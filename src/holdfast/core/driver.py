"""One run of a plan: what it wants next, and telling it what came of that.

Every runner of plans uses it: the threads and tasks of clients, the server, schedulers, the simulation, the
explorer. It knows how a plan goes on and ends. How a step is done, and what is waited for meanwhile, is the
business of the runner.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from holdfast import errors
from holdfast.core.plans import Abandoned

T = TypeVar("T")
Do = Callable[[Any], Any]  # does a step, and returns what comes of it


class Drive(Generic[T]):
    """A plan under way. `tell(None)` begins it; then each step is answered with `tell` or `fail`.

    Both return whether the plan wants something more, which is the new `step`. Otherwise it has ended with
    its `result`. What the plan raises goes through to the runner.
    """

    step: Any = None
    result: T | None = None

    def __init__(self, plan: Generator[Any, Any, T]) -> None:
        self.plan = plan

    def tell(self, answer: Any) -> bool:
        """Tell the plan what came of its step."""
        try:
            self.step = self.plan.send(answer)
            return True
        except StopIteration as done:
            self.result = done.value
            return False

    def fail(self, error: BaseException) -> bool:
        """Tell the plan that its step has failed, or that its runner cannot go on (`Abandoned`)."""
        try:
            self.step = self.plan.throw(error)
            return True
        except StopIteration as done:
            self.result = done.value
            return False
        finally:
            del error  # if it goes through, its traceback has this frame: they would keep each other alive

    def finish(
        self, do: Do, going: bool, *, waits: tuple[type, ...], told: type[Exception] = errors.StoreError
    ) -> None:
        """Do the steps that are left, one after the other, until the plan ends or wants to wait."""
        while going and not isinstance(self.step, waits):
            try:
                answer = do(self.step)
            except told as error:
                going = self.fail(error)
            else:
                going = self.tell(answer)

    def undo(self, do: Do, *, waits: tuple[type, ...], told: type[Exception] = errors.StoreError) -> None:
        """Abandon the plan, and do what it wants undone. A plan that has ended wants nothing."""
        with contextlib.suppress(Abandoned):
            self.finish(do, self.fail(Abandoned()), waits=waits, told=told)
