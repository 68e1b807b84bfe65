"""Who had which key by the tables, and which leases were taken over because they had run out.

Read from the audit, and only of keys that one owner has at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from proof.histories.records import PERMITS, SHARED, Clock, History, entered


@dataclass(slots=True)
class Lease:
    """A key that was somebody's, by the store's clock."""

    key: str
    token: int
    owner: str
    began: int
    expires_at: int  # as it was last
    claimed: bool  # or entered by the hand-over
    ended: int = 0  # 0: never, as far as the audit goes
    expired: bool = False  # it ended because its time had come


@dataclass(frozen=True, slots=True)
class Takeover:
    """A lease that ran out, and the one that followed it."""

    before: Lease
    after: Lease


def leases(history: History) -> Iterator[Lease]:
    """Return the leases of each key in order; those of different keys are mixed."""
    came = entered(history)
    current: dict[str, Lease] = {}
    for row in history.audit:
        if row.what != "lock" or row.key.partition(":")[0] in (SHARED, PERMITS):
            continue
        lease = current.get(row.key)
        owner = row.owner if row.attempt or row.holds else ""  # one that is shut has an owner and no hold
        if lease is not None and (owner != lease.owner or row.token != lease.token):
            lease.ended, lease.expired = row.at, row.at >= lease.expires_at
            yield current.pop(row.key)
            lease = None
        if lease is not None:
            lease.expires_at, lease.claimed = row.expires_at, lease.claimed or row.claimed
        elif owner:
            claimed = row.claimed or (row.attempt, row.token) in came
            current[row.key] = Lease(row.key, row.token, owner, row.at, row.expires_at, claimed)
    yield from current.values()


def takeovers(found: Iterable[Lease]) -> list[Takeover]:
    """Return who took over from whom because the time of a lease had come.

    Not counted: a lock that was handed to somebody who never came for it, and an owner that follows itself.
    """
    last: dict[str, Lease] = {}
    result = []
    for lease in found:
        before = last.get(lease.key)
        if before is not None and before.expired and before.claimed and before.owner != lease.owner:
            result.append(Takeover(before, lease))
        last[lease.key] = lease
    return result


class BootTimes:
    """When it was, by the clock of the processes, that the store's clock said something."""

    def __init__(self, history: History) -> None:
        # Where the store's clock was stepped, times are ambiguous: what is drawn there is near enough.
        self._looks: list[Clock] = sorted(history.clocks, key=lambda look: look.store)
        self._stores = [look.store for look in self._looks]
        self._began = history.run.began

    def __call__(self, at: int) -> float:
        if not self._looks:
            return self._began
        look = self._looks[max(0, bisect_right(self._stores, at) - 1)]
        return look.boot + (at - look.store) / 1e6
