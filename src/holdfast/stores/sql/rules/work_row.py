"""A piece of work as its row has it, inside a transaction that has that row."""

from __future__ import annotations

import json

from holdfast.core.cluster import Finish, WorkState, WorkView, abandoned_for_good
from holdfast.stores.base import micros
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.rules.runner import Runner


class WorkRow:
    """See the module. The columns are as ``lock_work`` has them, after the key and the type."""

    state: WorkState
    due_at: int
    data: str
    text: str
    tries: int
    max_tries: int
    instance: str
    attempt: str
    token: int
    claim: int
    offered_at: int
    assigned_at: int | None

    def __init__(self, row: Row) -> None:
        self.key: str = row[0]
        self.type: str = row[1]
        self._read = row[2:WIDTH]
        for name, value in zip(COLUMNS, self._read, strict=True):
            setattr(self, name, value)

    def write(self, run: Runner) -> None:
        """Write it back, if anything about it changed."""
        values = tuple(getattr(self, name) for name in COLUMNS)
        if values != self._read:
            named = dict(zip(COLUMNS, values, strict=True))
            run.later("write_work", key=self.key, type=self.type, **named)
            self._read = values

    def view(self) -> WorkView:
        """Return it as others may see it."""
        assigned_at = None if self.assigned_at is None else self.assigned_at / 1e6
        times = self.offered_at / 1e6, assigned_at, self.due_at / 1e6
        trial = self.tries, self.max_tries, self.instance, self.token
        return WorkView(self.key, self.state, self.data, self.text, *trial, *times)

    def begin_again(self, now: int) -> None:
        """Become as new, with the data it had."""
        self.state, self.due_at, self.offered_at = "offered", now, now
        self.text = self.instance = self.attempt = ""
        self.tries = self.token = self.claim = 0
        self.assigned_at = None

    def abandon(self, run: Runner, now: int) -> None:
        """Be offered again because the lease has ended, unless it was tried as often as it may."""
        if self.max_tries and self.tries >= self.max_tries:
            self.state, self.due_at = "failed", now
            self.text = abandoned_for_good(self.tries)
        else:
            self._go_to_the_head(run, self.due_at)

    def give_back(self, run: Runner, now: int) -> None:
        """Be offered again as if it had not been tried."""
        self.tries -= 1
        self._go_to_the_head(run, now)

    def _go_to_the_head(self, run: Runner, due: int) -> None:
        """Be offered again, before all others of the type: somebody was at it before."""
        ((_, first, _),) = run("next_due", types=json.dumps([self.type]), now=due)
        self.state, self.due_at = "offered", due if first is None or first >= due else first - 1

    def end(self, run: Runner, request: Finish, now: int) -> None:
        """Come to the state in which an assignment has ended."""
        at = None if request.at is None else micros(request.at)
        if request.data is not None:
            self.data = request.data
        if request.ending == "returned":
            self.give_back(run, now)
            self.due_at = self.due_at if at is None else at
            return
        self.text = request.text
        if request.ending == "completed":
            self.state, self.due_at = "completed", now
            if at is not None:
                self.state, self.due_at, self.tries = "offered", at, 0
        elif request.retry is not None and not (self.max_tries and self.tries >= self.max_tries):
            self.state, self.due_at = "offered", now + micros(request.retry) if at is None else at
        else:
            self.state, self.due_at = "failed", now


COLUMNS = tuple(WorkRow.__annotations__)
WIDTH = 2 + len(COLUMNS)
