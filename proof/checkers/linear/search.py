"""Whether a history can be explained by requests that took effect one after the other: a second, other look.

The algorithm is that of Wing and Gong with Lowe's cache, as just-in-time linearization: it goes through calls
and returns in the order of time and keeps every *configuration* that is possible, which is a state of the
model and the set of requests under way that have taken effect already. When a request returns, each
configuration must be one in which it has taken effect, or lead to one by letting others take effect before
it. If none does, no order explains the history. Where nothing is under way, a configuration is only a state:
there the history is cut, and what follows depends on nothing but those states.

A request that only looks is let take effect as soon as it is possible: whatever is possible without that is
possible with it. That leaves only those that change something to be tried in different orders.

What a lock may answer is in `lease_model`, what the requests are in `slices`. Nothing is shared with the
checker of token order but the records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from proof.checkers.linear import slices
from proof.checkers.linear.explanation import explain
from proof.checkers.linear.lease_model import LeaseModel, Lock
from proof.histories.records import History, Verdict, Violation

LIMIT = 20_000  # configurations at once; real histories have some ten

RULE = "linearizable"


class Timed(Protocol):
    """Something that took effect between two instants; or, unless it *must*, maybe not at all."""

    @property
    def called(self) -> float: ...
    @property
    def returned(self) -> float: ...
    @property
    def must(self) -> bool: ...
    @property
    def looks(
        self,
    ) -> bool: ...  # where it can leave the state as it is, nothing is gained by having it later


Op = TypeVar("Op", bound=Timed)
S = TypeVar("S", bound=Hashable)
Step = Callable[[S, Op], Iterable[S]]


@dataclass
class Finding(Generic[S, Op]):
    """What came of a search."""

    decided: bool = True
    stuck: Op | None = None  # the request that cannot be explained
    before: tuple[S, ...] = ()  # the states that were possible when it returned
    since: tuple[S, ...] = ()  # those at the last cut
    window: list[Op] = field(default_factory=list)  # what was called since the last cut
    cuts: int = 0
    most: int = 1  # configurations at once
    judged: int = 0  # requests that were explained

    @property
    def explained(self) -> bool:
        """Whether there is an order that explains everything."""
        return self.decided and self.stuck is None


def search(
    operations: Sequence[Op], step: Step[S, Op], begin: Iterable[S], limit: int = LIMIT
) -> Finding[S, Op]:
    """Look for an order in which *operations* take effect one after the other, from a state of *begin*.

    *step* returns the states that are possible after an operation, none if it is impossible.
    """
    return _Search(operations, step, begin, limit).run()


class _Search(Generic[S, Op]):
    """A configuration is a state and a set of bits, one for each request under way that has taken effect."""

    def __init__(self, operations: Sequence[Op], step: Step[S, Op], begin: Iterable[S], limit: int) -> None:
        self._operations = operations
        self._step = step
        self._limit = limit
        self._configurations: set[tuple[S, int]] = {(state, 0) for state in begin}
        self._under_way: dict[int, int] = {}  # which operation → its bit
        self._cache: dict[tuple[S, int], tuple[S, ...]] = {}
        self._finding: Finding[S, Op] = Finding(since=self._states())

    def run(self) -> Finding[S, Op]:
        """Go through the history."""
        finding = self._finding
        for which, returns in _events(self._operations):
            operation = self._operations[which]
            if not returns:
                finding.window.append(operation)
                self._call(which)
                continue
            before = self._states()
            if not self._return(which):
                if finding.decided:
                    finding.stuck, finding.before = operation, before
                return finding
            finding.judged += 1
            finding.most = max(finding.most, len(self._configurations))
            if not self._under_way:
                finding.cuts += 1
                finding.since = self._states()
                finding.window.clear()
                self._cache.clear()
        return finding

    def _states(self) -> tuple[S, ...]:
        return tuple({state for state, _ in self._configurations})

    def _after(self, state: S, which: int) -> tuple[S, ...]:
        """Return what the model says."""
        known = self._cache.get((state, which))
        if known is None:
            known = self._cache[state, which] = tuple(self._step(state, self._operations[which]))
        return known

    def _only_looks(self, state: S, which: int) -> bool:
        return self._operations[which].looks and state in self._after(state, which)

    def _call(self, which: int) -> None:
        taken = 0
        for bit in self._under_way.values():
            taken |= bit
        bit = ~taken & (taken + 1)  # the lowest that is free
        self._under_way[which] = bit
        self._configurations = {
            (state, done | bit if self._only_looks(state, which) else done)
            for state, done in self._configurations
        }

    def _return(self, which: int) -> bool:
        """Keep the configurations in which it has taken effect. False if none is left, or too many."""
        bit = self._under_way[which]
        kept = {(state, done & ~bit) for state, done in self._configurations if done & bit}
        seen = {each for each in self._configurations if not each[1] & bit}
        to_do = list(seen)
        if not self._operations[which].must:
            kept |= seen
        while to_do:
            state, done = to_do.pop()
            for other, others_bit in self._under_way.items():
                if done & others_bit:
                    continue
                for after in self._after(state, other):
                    new = after, self._settled(after, done | others_bit)
                    if new[1] & bit:
                        kept.add((after, new[1] & ~bit))
                    elif new not in seen:
                        seen.add(new)
                        to_do.append(new)
            if len(seen) > self._limit or len(kept) > self._limit:
                self._finding.decided = False
                return False
        del self._under_way[which]
        self._configurations = kept
        return bool(kept)

    def _settled(self, state: S, done: int) -> int:
        """Let everything take effect that only looks."""
        for which, bit in self._under_way.items():
            if not done & bit and self._only_looks(state, which):
                done |= bit
        return done


def _events(operations: Sequence[Timed]) -> Iterable[tuple[int, bool]]:
    """Return which operation is called, or returns, in the order of time; of one instant, calls first."""
    calls = [(operation.called, False, which) for which, operation in enumerate(operations)]
    returns = [(operation.returned, True, which) for which, operation in enumerate(operations)]
    return [(which, returned) for _, returned, which in sorted(calls + returns)]


def check(history: History) -> Verdict:
    """Judge every key that is an exclusive lock."""
    began = time.perf_counter()
    verdict = Verdict("linear")
    asked = cuts = unknown = 0
    most = 1
    for part in slices.cut(history):
        verdict.violations += part.violations
        if part.unresolved or part.strange:  # nobody can say what became of them, or what they want
            verdict.undecided += part.unresolved + part.strange
            continue
        finding = search(part.operations, LeaseModel(part.last).step, [Lock()])
        if not finding.decided:
            verdict.undecided += 1
        elif finding.stuck is not None:
            text = explain(finding, history.run.began)
            verdict.violations.append(Violation(RULE, part.key, text))
        asked += finding.judged
        cuts += finding.cuts
        unknown += part.resolved
        most = max(most, finding.most)
    verdict.checked[RULE] = asked
    verdict.figures |= {
        "linear_seconds": time.perf_counter() - began,
        "linear_slices": cuts,
        "linear_configurations": most,
        "linear_unknown_resolved": unknown,
    }
    return verdict
