"""What clients asked of the store, by attempt: who may end what, and from when on; and what was answered."""

from __future__ import annotations

import math
from bisect import bisect_left

from proof.checkers.order.clocks import Clocks
from proof.histories.records import Ask

WAITING = frozenset({"Queued", "waiting"})


def micros(seconds: float) -> int:
    """Return a duration as the store counts it."""
    return round(seconds * 1_000_000)


class Attempt:
    """What became of one attempt, as its client knows."""

    __slots__ = ("asked", "entered", "granted", "key", "let_go", "owner", "ttl", "waited", "withdrawn")

    def __init__(self, key: str) -> None:
        self.key = key
        self.owner = ""
        self.asked = math.inf  # when it first asked for the lock
        self.ttl = 0  # the longest that it asked for, in microseconds
        self.let_go = math.inf  # when it first asked to be rid of it: a release or a withdrawal
        self.withdrawn = False  # whether it asked for a withdrawal
        self.waited: list[tuple[float, float]] = []  # answers that it waits: when told, and asked; in order
        self.granted: list[Ask] = []
        self.entered = 0  # by the hand-over, under this token

    def told_of(self, at: int, clocks: Clocks) -> float:
        """Return when it was told of a ticket, or of its new end, that was written *at*; never: infinity.

        That is by the answer to the request that wrote it. If it may have been one or the next, the next.
        """
        waited = self.waited
        by = at + clocks.stepped_by(at) * 1e6  # as late as it may have been, if the clock was behind
        place = bisect_left(waited, by, key=lambda each: clocks.at(each[0])[1])
        while place + 1 < len(waited) and clocks.at(waited[place + 1][1])[0] <= by:
            place += 1
        return waited[place][0] if place < len(waited) else math.inf


STRANGER = Attempt("")  # one that is not recorded


class Asked:
    """All attempts, and all breaks."""

    def __init__(self, asks: list[Ask]) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.breaks: dict[str, list[tuple[float, int]]] = {}  # key → when asked for, and which token (0: any)
        self.releases: list[Ask] = []  # that were answered with Released
        self.patience = 0.0  # the longest of any ticket; claim windows and heartbeats are shorter
        for ask in asks:
            self._add(ask)
        for attempt in self.attempts.values():
            attempt.waited.sort()

    def may_be_broken(self, key: str, token: int, at: int, clocks: Clocks) -> bool:
        """Tell whether somebody had asked, by *at*, to break what is held under *token* (0: whatever is)."""
        return any(
            0 in (token, which) or token == which
            for called, which in self.breaks.get(key, ())
            if clocks.may_follow(at, called)
        )

    def _add(self, ask: Ask) -> None:
        kind = ask.kind
        if ask.patience > self.patience:
            self.patience = ask.patience
        if kind == "Break":
            if ask.outcome != "refused" and ask.answer != "NotHeld":
                self.breaks.setdefault(ask.key, []).append((ask.called, ask.token))
            return
        attempt = self.attempts.get(ask.attempt)
        if attempt is None:
            attempt = self.attempts[ask.attempt] = Attempt(ask.key)
        if kind == "Acquire":
            attempt.owner = ask.owner
            attempt.asked = min(attempt.asked, ask.called)
            attempt.ttl = max(attempt.ttl, micros(ask.ttl))
            if ask.answer == "Granted":
                attempt.granted.append(ask)
            elif ask.answer in WAITING:
                attempt.waited.append((ask.returned, ask.called))
        elif kind == "Refresh":
            if ask.answer in WAITING:
                attempt.waited.append((ask.returned, ask.called))
        elif kind == "Enter":
            attempt.entered = ask.token
            attempt.granted.append(ask)
        elif kind == "Renew":
            attempt.ttl = max(attempt.ttl, micros(ask.ttl))
        elif kind in ("Release", "Withdraw"):
            if ask.outcome != "refused":
                attempt.let_go = min(attempt.let_go, ask.called)
                attempt.withdrawn |= kind == "Withdraw"
            if ask.answer == "Released":
                self.releases.append(ask)
