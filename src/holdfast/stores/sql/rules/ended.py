"""Attempts at a key that are over: remembered for a while, so that a late copy of a request finds nothing."""

from __future__ import annotations

import json

from holdfast.core.family import load_cycle, load_failures
from holdfast.core.requests import Deadlocked, Done, Failed, NotHeld, Refused
from holdfast.stores.base import REMEMBER
from holdfast.stores.sql.rules.columns import EndedColumns
from holdfast.stores.sql.rules.runner import Runner


class EndedAttempts:
    """How attempts at one key ended, our own above all."""

    def __init__(self, run: Runner, key: str, now: int, attempt: str, mine: EndedColumns) -> None:
        self._run = run
        self._key = key
        self._now = now
        self._attempt = attempt
        self._mine = mine
        self.changed = False

    def remember(
        self, attempt: str, why: str, since: int, by: str | None = None, reason: str | None = None
    ) -> None:
        """Remember that an attempt is over."""
        self.changed = True
        until_at = since + REMEMBER[why]
        if attempt == self._attempt and until_at > self._now:
            self._mine = EndedColumns(why, by, reason)
        ended = {"why": why, "by": by, "reason": reason, "until_at": until_at}
        self._run.later("write_ended", key=self._key, attempt=attempt, **ended)

    def read_again(self) -> None:
        """Look what became of our attempt, where many were ended at once."""
        self._mine = self._run.lock(self._key, self._attempt, self._now).ended

    def mine(self) -> NotHeld | None:
        """Return how our attempt ended, if it is remembered, in words for who does not wait any more."""
        why, by, reason = self._mine
        if why is None:
            return None
        if why == "broken":
            return NotHeld("broken", by, reason)
        return NotHeld("expired" if why == "expired" else "already")

    def what_we_waited_for(self) -> Done | Failed | Deadlocked | Refused | None:
        """Return what our attempt is to be told, if it ended while it waited."""
        why, _, reason = self._mine
        if why in ("done", "failed"):
            for _, text in self._run("read_outcome", key=self._key, token=int(reason)):
                return Done(text, int(reason)) if why == "done" else Failed(load_failures(json.loads(text)))
        elif why == "deadlocked":
            return Deadlocked(load_cycle(json.loads(reason)))
        elif why == "refused":
            return Refused("take", int(reason))
        return None
