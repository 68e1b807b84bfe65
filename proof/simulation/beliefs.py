"""What clients believe, and whether they may: no client trusts a lease past its end in the store (P3).

And whether those who use one lease at once are one: all of them are inside of one block, its *context*, or
say that they are one owner. The names of owners cannot tell that: they are what could be wrong.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.core.keeper import Kept
from holdfast.stores.base import micros
from proof.simulation.observed import State
from proof.simulation.step import EPOCH, Violation


class Believer(Protocol):
    """A client, as far as its beliefs are concerned."""

    def true_time(self, local: float) -> float:
        """Return the virtual time at which its clock shows *local*."""


class Beliefs:
    """Who trusts which lease, and until when the store has it."""

    def __init__(self) -> None:
        self._believers: dict[str, dict[str, tuple[Believer, Kept, str]]] = {}  # by key and attempt
        self._ends: dict[str, int] = {}  # attempt → the last end of its hold
        self._broken: set[str] = set()  # by an operator: the holder learns of it when it asks

    def broke(self, attempts: set[str]) -> None:
        """Take note that an operator ended these attempts."""
        self._broken |= attempts

    def honest(self, kept: Kept, now: float) -> bool:
        """Tell whether a lease that is trusted at *now* is not over in the store."""
        attempt = kept.grant.attempt
        return attempt in self._broken or micros(EPOCH + now) < self._ends.get(attempt, 0)

    def begin(self, client: Believer, kept: Kept, now: float, state: State, context: str) -> None:
        """Take note that a client trusts a lease from now on: nobody else may, unless both fit."""
        grant = kept.grant
        believers = self._believers.setdefault(grant.key, {})
        for attempt, (other, theirs, inside) in believers.items():
            if theirs.lost is not None:
                continue
            if theirs.grant.token == grant.token:
                if inside != context:
                    raise Violation(
                        "2 exclusion",
                        f"{grant.attempt} is in {grant.key} in the context {context}, by the lease that"
                        f" {attempt} trusts in {inside}",
                    )
                continue
            if self._broken & {attempt, grant.attempt}:
                continue
            ours, other_hold = state.holds.get(grant.attempt), state.holds.get(attempt)
            if ours and other_hold and ours.terms.mode == other_hold.terms.mode != "exclusive":
                continue  # as many as fit: see the second invariant
            until = other.true_time(theirs.trusted_until)
            if until > now:
                raise Violation(
                    "3 trust",
                    f"{grant.attempt} trusts {grant.key} with token {grant.token}, while {attempt} trusts"
                    f" it with token {theirs.grant.token} until {until:.4f}",
                )
        believers[grant.attempt] = (client, kept, context)

    def end(self, kept: Kept) -> None:
        """Take note that a client gave a lease up, lost it, or is no more."""
        self._believers.get(kept.grant.key, {}).pop(kept.grant.attempt, None)

    def compare(self, key: str, state: State, now: int) -> None:
        """Compare all trust in a key with the store, after a request or an answer."""
        for attempt, hold in state.holds.items():
            self._ends[attempt] = hold.end
        for attempt, (client, kept, _) in self._believers.get(key, {}).items():
            if kept.lost is not None or attempt in self._broken:
                continue
            until = micros(EPOCH + client.true_time(kept.trusted_until))
            held = attempt in state.holds
            end = self._ends.get(attempt, 0)
            if until > end or (not held and end > now and until > now):
                raise Violation(
                    "3 trust",
                    f"{attempt} trusts {key} until {until / 1e6 - EPOCH:.4f}; in the store it is"
                    f" {'over' if held else 'gone'} at {(end if held else min(end, now)) / 1e6 - EPOCH:.4f}",
                )
