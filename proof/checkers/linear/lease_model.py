"""One lock, as the protocol describes it: which answers are possible in which state, and what follows.

The state of a key is its highest token so far, the owner and the holds of its lease, and the attempts that
have ended. It is the owner-aware, reentrant, fenced lease of docs/concepts/protocol.md on plain terms.

Time. All processes share one clock, and a request takes effect at some instant between its call and its
return. So a hold that was granted or renewed for *ttl* ends at `called + ttl` at the earliest, and at
`returned + ttl` at the latest. An end is a step that nobody asks for: it is possible for a request that
returned after the earliest end (then the next owner may be granted), and certain for one that was called
after the latest (then "renewed" and "busy with it" are impossible). The two bounds of each request are all
that is used. That the requests before and after it bound the instant further is not, which costs a little
sharpness where they overlap, and saves the search a dimension.

Modelled: new leases (a higher token, and the lease before over), entering by a hand-over, re-entry (same
owner, same token), repeats and claims by the same attempt, renewal, release, withdrawal and break of exactly
what they name, how many holds there are, that an ended attempt never holds again and is told how it ended,
and that whoever is told to wait is told so for a reason.

Not modelled: the order of the queue (that is the other checker's), and what a hand-over does before it is
claimed, if its winner does not enter by it. Such a lease is nothing that anybody believes in; it may be what
others wait for, and so counts as a reason for them, see `Operation.excused`. `expires_in` and the place in
the queue are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from proof.histories.records import Ask

# What an attempt may be told, by how it ended. The last release of a key is forgotten when the next lease has
# ended, and then only the higher token tells of it.
TOLD = {
    "released": ("already", "taken over"),
    "withdrawn": ("already",),
    "expired": ("expired", "taken over"),
    "broken": ("broken",),
    "deadlocked": ("already",),
    "": ("unknown", "expired", "taken over"),  # it never held anything that it could have known of
}


UNDEAD = -math.inf  # the earliest end of a hold whose release a crash may have undone
LOOKS = frozenset({"Busy", "Queued", "NotHeld", "TooManyHolds", "waiting", "handed", "gone", "lost"})


class Hold(NamedTuple):
    """One entry into the lock, and when it ends unless something is done about it."""

    attempt: str
    earliest: float
    latest: float


class Lock(NamedTuple):
    """The state of a key."""

    token: int = 0  # the highest ever granted; of the lease, if there is one
    owner: str = ""  # empty: free, or handed over and not claimed yet
    holds: tuple[Hold, ...] = ()
    ended: frozenset[tuple[str, str]] = frozenset()  # attempt and how; only of those that ask again

    def find(self, attempt: str) -> Hold | None:
        """Return the hold of an attempt."""
        for hold in self.holds:
            if hold.attempt == attempt:
                return hold
        return None

    def how_ended(self, attempt: str) -> str:
        """Return how an attempt has ended; empty if it has not."""
        for which, how in self.ended:
            if which == attempt:
                return how
        return ""


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """A request with its answer, and what is known of its circumstances."""

    ask: Ask
    answer: str
    owner: str  # also of those who do not say it
    token: int  # that was granted, or asked about
    called: float
    returned: float
    must: bool = True  # False: nobody knows whether it ever took effect
    count: int | None = None  # holds that there are (Granted) or are left (Released), if it was told
    earliest: float = math.inf  # end of the hold, if this grants or renews one
    latest: float = math.inf
    excused: bool = False  # somebody else may have been waiting: so it is told to wait
    pinned: bool = False  # the row may have been locked, as by a transaction that fences the lease
    # The release may have been lost in a crash of the database, as it is allowed to be; or the hand-over that
    # it was told of, which others may see before it is on the disk.
    lossy: bool = False
    forgotten: bool = False  # so long ago that nobody remembers how the attempt ended
    by_others: tuple[str, ...] = ()  # what it may be told if others ended its ticket, or its unclaimed grant

    @property
    def attempt(self) -> str:
        """Whose request it is."""
        return self.ask.attempt

    @property
    def looks(self) -> bool:
        """Whether it only tells how things are. An end that it might notice is noticed by who needs it."""
        return self.answer in LOOKS


Next = tuple[Lock, ...]
IMPOSSIBLE: Next = ()


class LeaseModel:
    """The rules. *last* says of each attempt when the last of its requests returned."""

    def __init__(self, last: Mapping[str, float]) -> None:
        self._last = last

    @staticmethod
    def knows(kind: str, answer: str) -> bool:
        """Tell whether there is a rule for such an answer; what has none says nothing about a state."""
        return (kind, answer) in RULES

    def step(self, lock: Lock, op: Operation) -> Next:
        """Return every state that the key may be in after *op*; none if *op* is impossible in this one."""
        return RULES[op.ask.kind, op.answer](self, lock, op)

    # Getting it.

    def _granted(self, lock: Lock, op: Operation) -> Next:
        if lock.how_ended(op.attempt) and not op.forgotten:
            return IMPOSSIBLE
        given = Hold(op.attempt, op.earliest, op.latest)
        mine = lock.find(op.attempt)
        if mine is not None:  # asked again: the end moves, and never back
            if op.token != lock.token or not _may_live(mine, op):
                return IMPOSSIBLE
            given = Hold(op.attempt, max(mine.earliest, op.earliest), max(mine.latest, op.latest))
        if op.token == lock.token and lock.owner == op.owner and lock.holds:
            others = [hold for hold in lock.holds if hold is not mine]
            if mine is not None:  # nothing is settled for that, so who is over and not noticed counts as well
                known = op.count is None or op.count <= len(lock.holds)
                return (self._with(lock, op, (*others, given), ()),) if known else IMPOSSIBLE
            left = None if op.count is None else op.count - 1
            return tuple(
                self._with(lock, op, (*alive, given), over)
                for alive, over in _alive_and_over(others, op, left)
                if any(_may_live(hold, op) for hold in alive)
            )
        if op.token > lock.token and op.count in (None, 1) and all(_may_be_over(h, op) for h in lock.holds):
            return (self._with(lock, op, (given,), lock.holds)._replace(token=op.token, owner=op.owner),)
        return IMPOSSIBLE

    def _blocked(self, lock: Lock, op: Operation) -> Next:
        if lock.how_ended(op.attempt) and not op.forgotten:
            return IMPOSSIBLE
        if lock.owner != op.owner:
            held = any(_may_live(hold, op) for hold in lock.holds)
            return (lock,) if held or op.excused or op.pinned else IMPOSSIBLE
        if op.pinned:
            return (lock,)  # the row is locked: it cannot even be entered again
        if op.excused and all(_may_be_over(hold, op) for hold in lock.holds):
            return (self._with(lock, op, (), lock.holds),)
        return IMPOSSIBLE

    def _handed(self, lock: Lock, op: Operation) -> Next:
        if (mine := lock.find(op.attempt)) is not None:
            return (lock,) if _may_live(mine, op) else IMPOSSIBLE
        if lock.how_ended(op.attempt) and not op.forgotten:
            return IMPOSSIBLE
        if all(_may_be_over(hold, op) for hold in lock.holds):
            over = self._with(lock, op, (), lock.holds) if lock.holds else lock
            return (over, lock) if op.lossy and any(map(_is_undead, lock.holds)) else (over,)
        return IMPOSSIBLE

    def _gone(self, lock: Lock, op: Operation) -> Next:
        return self._without(lock, op, lock.find(op.attempt))

    def _too_many(self, lock: Lock, op: Operation) -> Next:
        held = lock.owner == op.owner and any(_may_live(hold, op) for hold in lock.holds)
        return (lock,) if held else IMPOSSIBLE

    def _deadlocked(self, lock: Lock, op: Operation) -> Next:
        how = lock.how_ended(op.attempt)
        if how == "deadlocked":
            return (lock,)
        if how or lock.find(op.attempt) is not None:
            return IMPOSSIBLE
        return (self._with(lock, op, lock.holds, (), "deadlocked"),)

    # Keeping it.

    def _renewed(self, lock: Lock, op: Operation) -> Next:
        mine = lock.find(op.attempt)
        if mine is None or op.token != lock.token or not _may_live(mine, op):
            return IMPOSSIBLE
        latest = op.latest
        if op.answer == "held":  # its end is later than this renewal would have made it
            if mine.latest < op.called + op.ask.ttl:
                return IMPOSSIBLE
            latest = mine.latest
        moved = Hold(op.attempt, max(mine.earliest, op.earliest), latest)
        if moved == mine:
            return (lock,)
        return (self._with(lock, op, (*(h for h in lock.holds if h is not mine), moved), ()),)

    # Giving it back, having lost it.

    def _released(self, lock: Lock, op: Operation) -> Next:
        mine = lock.find(op.attempt)
        if mine is None or op.token != lock.token or not _may_live(mine, op):
            return IMPOSSIBLE
        others = [hold for hold in lock.holds if hold is not mine]
        states = [
            self._with(lock, op, alive, over, "released")
            for alive, over in _alive_and_over(others, op, op.count)
        ]
        if states and op.lossy:  # it is back after the crash, to its end at most; or it is not
            undead = mine._replace(earliest=UNDEAD)
            states.append(self._with(lock, op, (*others, undead), ()))
        return tuple(states)

    def _withdrawn(self, lock: Lock, op: Operation) -> Next:
        # A release that did not retire its attempt is forgotten when the next lease has ended.
        if lock.how_ended(op.attempt) not in ("", "released") and not op.forgotten:
            return IMPOSSIBLE
        mine = lock.find(op.attempt)
        if mine is not None and not _may_live(mine, op):
            return IMPOSSIBLE
        return (self._with(lock, op, [h for h in lock.holds if h is not mine], (), "withdrawn"),)

    def _not_held(self, lock: Lock, op: Operation) -> Next:
        """It holds nothing under that token, and is told why."""
        mine = lock.find(op.attempt)
        if mine is not None and (op.ask.kind not in ("Renew", "Release") or op.token == lock.token):
            return self._without(lock, op, mine) if op.ask.why in TOLD["expired"] else IMPOSSIBLE
        how = lock.how_ended(op.attempt)
        known = op.ask.why in TOLD[how] and (how or op.ask.kind in ("Renew", "Release"))
        by_others = op.ask.why in op.by_others and not how
        return (lock,) if known or by_others or op.forgotten else IMPOSSIBLE

    def _broken(self, lock: Lock, op: Operation) -> Next:
        if op.token == lock.token and lock.holds:
            return tuple(
                self._with(self._with(lock, op, alive, over), op, (), alive, how="broken")
                for count in range(1, len(lock.holds) + 1)
                for alive, over in _alive_and_over(lock.holds, op, count)
            )
        if op.token > lock.token and all(_may_be_over(hold, op) for hold in lock.holds):
            return (self._with(lock, op, (), lock.holds)._replace(token=op.token),)  # it was not claimed yet
        return IMPOSSIBLE

    def _not_broken(self, lock: Lock, op: Operation) -> Next:
        if not lock.holds or (op.ask.why == "taken over" and op.token != lock.token):
            return (lock,)
        if all(_may_be_over(hold, op) for hold in lock.holds):
            return (self._with(lock, op, (), lock.holds),)
        return IMPOSSIBLE

    # States.

    def _without(self, lock: Lock, op: Operation, mine: Hold | None) -> Next:
        """Have the end of a hold come, if it can have."""
        if mine is None:
            return (lock,)
        if not _may_be_over(mine, op):
            return IMPOSSIBLE
        return (self._with(lock, op, [hold for hold in lock.holds if hold is not mine], (mine,)),)

    def _with(
        self,
        lock: Lock,
        op: Operation,
        holds: Iterable[Hold],
        over: Iterable[Hold],
        mine: str = "",
        how: str = "expired",
    ) -> Lock:
        """Return the state with these holds, with others over, and with our attempt ended as *mine* says."""
        ended = {(attempt, why) for attempt, why in lock.ended if self._last[attempt] >= op.called}
        ended.update((hold.attempt, how) for hold in over if self._last[hold.attempt] >= op.called)
        if mine and self._last[op.attempt] >= op.called:
            ended.add((op.attempt, mine))
        left = tuple(sorted(holds))
        return Lock(lock.token, lock.owner if left else "", left, frozenset(ended))


def _is_undead(hold: Hold) -> bool:
    """Tell whether it was released, and may be back after a crash."""
    return hold.earliest == UNDEAD


def _may_live(hold: Hold, op: Operation) -> bool:
    """Tell whether the end of a hold may not have come yet when *op* took effect."""
    return op.called < hold.latest


def _may_be_over(hold: Hold, op: Operation) -> bool:
    """Tell whether the end of a hold may have come when *op* took effect."""
    return hold.earliest <= op.returned


def _alive_and_over(
    holds: Sequence[Hold], op: Operation, count: int | None
) -> Iterable[tuple[tuple[Hold, ...], tuple[Hold, ...]]]:
    """Return all ways in which so many of *holds* are alive when *op* takes effect, and the others over.

    If it is not known how many, nothing is decided about them now.
    """
    if count is None:
        yield tuple(holds), ()
        return
    certain = [hold for hold in holds if not _may_be_over(hold, op)]
    over = [hold for hold in holds if not _may_live(hold, op)]
    open_ = [hold for hold in holds if _may_be_over(hold, op) and _may_live(hold, op)]
    for chosen in combinations(open_, count - len(certain)) if count >= len(certain) else ():
        yield (*certain, *chosen), (*over, *(hold for hold in open_ if hold not in chosen))


RULES: dict[tuple[str, str], Callable[[LeaseModel, Lock, Operation], Next]] = {
    ("Acquire", "Granted"): LeaseModel._granted,
    ("Enter", "Granted"): LeaseModel._granted,
    ("Acquire", "Busy"): LeaseModel._blocked,
    ("Acquire", "Queued"): LeaseModel._blocked,
    ("Acquire", "NotHeld"): LeaseModel._not_held,
    ("Acquire", "TooManyHolds"): LeaseModel._too_many,
    ("Acquire", "Deadlocked"): LeaseModel._deadlocked,
    ("Refresh", "waiting"): LeaseModel._blocked,
    ("Refresh", "handed"): LeaseModel._handed,
    ("Refresh", "gone"): LeaseModel._gone,
    ("Renew", "renewed"): LeaseModel._renewed,
    ("Renew", "held"): LeaseModel._renewed,
    ("Renew", "lost"): LeaseModel._not_held,
    ("Release", "Released"): LeaseModel._released,
    ("Release", "NotHeld"): LeaseModel._not_held,
    ("Withdraw", "Withdrawn"): LeaseModel._withdrawn,
    ("Withdraw", "NotHeld"): LeaseModel._not_held,
    ("Break", "Broken"): LeaseModel._broken,
    ("Break", "NotHeld"): LeaseModel._not_broken,
}
