"""The search of the checker of linearizability, compared with one that tries all orders.

On thousands of tiny histories, of a register, of a mutex and of leases, many of them without an explanation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import Any

import pytest

from proof.checkers.linear import search, slices
from proof.checkers.linear.lease_model import LeaseModel, Lock
from proof.histories.records import History
from tests.faults.linear_simulation import Simulation


@dataclass(frozen=True)
class Op:
    what: str
    value: int
    called: float
    returned: float
    must: bool = True

    @property
    def looks(self) -> bool:
        return self.what in ("read", "busy")


def register(state: int, op: Op) -> tuple[int, ...]:
    if op.what == "write":
        return (op.value,)
    return (state,) if state == op.value else ()


def mutex(state: int, op: Op) -> tuple[int, ...]:
    """*value* is the owner; a try that says whether it was refused must be right."""
    if op.what == "lock":
        return (op.value,) if state == 0 else ()
    if op.what == "unlock":
        return (0,) if state == op.value else ()
    return (state,) if state != 0 else ()


def try_all_orders(operations: Sequence[Any], step: Callable[[Any, Any], Any], begin: Any) -> bool:
    """Tell whether an order explains them, in the plainest way there is."""
    may = [op for op in operations if not op.must]
    for count in range(len(may) + 1):
        for left_out in combinations(may, count):
            rest = [op for op in operations if op not in left_out]
            for order in permutations(rest):
                in_time = all(
                    order[later].returned >= order[first].called
                    for first in range(len(order))
                    for later in range(first + 1, len(order))
                )
                states = {begin} if in_time else set()
                for op in order:
                    states = {after for state in states for after in step(state, op)}
                if states:
                    return True
    return False


def tiny(dice: random.Random, whats: Sequence[str], values: int) -> list[Op]:
    """Return some operations that overlap, with answers that may be nonsense."""
    operations = []
    for _ in range(dice.randint(2, 6)):
        called = dice.randint(0, 8)
        returned = called + dice.randint(0, 5)
        op = Op(dice.choice(whats), dice.randrange(values), called, returned, dice.random() < 0.85)
        operations.append(op)
    return operations


@pytest.mark.parametrize(
    ("step", "whats", "values"),
    [(register, ("write", "read", "read"), 3), (mutex, ("lock", "unlock", "busy"), 3)],
    ids=["register", "mutex"],
)
def test_the_search_says_what_trying_all_orders_says(
    step: Callable[[int, Op], tuple[int, ...]], whats: Sequence[str], values: int
) -> None:
    dice = random.Random(1)
    verdicts = []
    for _ in range(1500):
        operations = tiny(dice, whats, values)
        verdicts.append(try_all_orders(operations, step, 0))
        assert search(operations, step, [0]).explained == verdicts[-1], operations
    assert 200 < sum(verdicts) < 1300


def test_the_search_says_of_leases_what_trying_all_orders_says() -> None:
    """Parts of simulated histories, some with an answer changed or two swapped."""
    dice = random.Random(2)
    verdicts = []
    for seed in range(300):
        history = Simulation(seed, clients=3, seconds=1.5, loss=0.2).run()
        if dice.random() < 0.6:
            spoil(history, dice)
        (part,) = slices.cut(history)
        operations = sorted(part.operations, key=lambda op: op.called)[:6]
        step = LeaseModel(part.last).step
        verdicts.append(try_all_orders(operations, step, Lock()))
        assert search(operations, step, [Lock()]).explained == verdicts[-1], seed
    assert 50 < sum(verdicts) < 280


def spoil(history: History, dice: random.Random) -> None:
    """Change what two requests were answered, or when."""
    early = sorted(range(len(history.asks)), key=lambda n: history.asks[n].called)[:8]
    one, other = (history.asks[n] for n in dice.sample(early, 2))
    swapped: dict[str, Any] = {
        "answer": other.answer,
        "token": other.token,
        "why": other.why,
        "outcome": other.outcome,
    }
    if one.kind == other.kind:
        history.asks[history.asks.index(one)] = replace(one, **swapped)
    else:
        shift = dice.uniform(-1, 1)
        shifted = replace(one, called=one.called + shift, returned=one.returned + shift)
        history.asks[history.asks.index(one)] = shifted


def test_a_search_that_would_take_too_long_is_undecided_and_not_right() -> None:
    operations = [Op("write", n, 0, 9) for n in range(12)] + [Op("read", 99, 10, 11)]
    finding = search(operations, register, [0], limit=50)
    assert not finding.decided
    assert not finding.explained
    assert finding.stuck is None
