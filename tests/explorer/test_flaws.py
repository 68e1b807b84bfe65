"""Planted flaws. Each must be found, by the name of what it breaks, and by the shortest way to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from holdfast.core import plans
from holdfast.core.keeper import Keeper
from holdfast.stores.memory.lock import Lock
from holdfast.stores.memory.locks import Locks
from holdfast.stores.memory.settlement import Settlement
from holdfast.stores.memory.state import Shard
from proof.explorer import Bounds, CounterExample, Fault, explore
from proof.explorer.__main__ import main
from proof.explorer.moves import Moves
from tests.explorer.plants import plant


class Flaw(NamedTuple):
    name: str
    owner: Any
    function: str
    changes: Mapping[str, str]
    breaks: str
    by: tuple[Fault, ...] = ()  # the fault without which it does no harm
    clients: int = 2
    turns: int = 1
    hands: bool = False

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.clients, turns=self.turns, faults=len(self.by), kinds=self.by, hands=self.hands)


FLAWS = [
    Flaw(
        "trust counted from the answer",
        plans,
        "acquire",
        {"trusted_until = asked + request.ttl - margin": "trusted_until = clock() + request.ttl - margin"},
        breaks="3 trust",
        by=("late answer",),
    ),
    Flaw(
        "trust in a renewal that failed",
        Keeper,
        "failed",
        {"self._postpone(kept, trouble, now)": "self._extend(kept, lease.ttl, now)"},
        breaks="3 trust",
        by=("unavailable",),
    ),
    Flaw(
        "a token that stays the same",
        Lock,
        "give",
        {"max(self.token + 1, now)": "max(self.token, now)"},
        breaks="1 tokens",
    ),
    Flaw(
        "a token that follows the clock",
        Lock,
        "give",
        {"max(self.token + 1, now)": "now + max(0, min(self.token - now + 1, 1000))"},
        breaks="1 tokens",
        by=("clock back",),
    ),
    Flaw(
        "who enters again gets a token of its own",
        Locks,
        "_enter_again",
        {"lease.token,": "lock.token + 1,"},
        breaks="1 tokens",
        turns=2,
    ),
    Flaw(
        "the last of the queue is next",
        Settlement,
        "_serve",
        {"next(iter(lock.tickets.items()))": "list(lock.tickets.items())[-1]"},
        breaks="6 fifo",
        clients=3,
    ),
    Flaw(
        "a newcomer passes the head of the queue",
        Locks,
        "_acquire",
        {
            "self._settle(shard, lock, now, post)": "self._expire(shard, lock, "
            "{a: h for a, h in lock.holds.items() if h.end <= now}, now, post)",
            "if not lock.tickets and lock.shut_until": "if lock.shut_until",
        },
        breaks="6 fifo",
        by=("crash",),
        clients=3,
    ),
    Flaw(
        "a dead ticket is handed the lock",
        Lock,
        "prune_head",
        {"while self.tickets:": "while False:"},
        breaks="6 fifo",
        by=("crash",),
    ),
    Flaw(
        "a release hands over to nobody",
        Locks,
        "_release",
        {"self._serve_sooner(shard, lock, watched, now, post) if lock.tickets else None": "None"},
        breaks="7 served",
    ),
    Flaw(
        "a renewal revives what has expired",
        Locks,
        "_renew_alive",
        {" or hold.end <= now": ""},
        breaks="1 tokens",
        by=("late request",),
    ),
    Flaw(
        "a late copy of an ended attempt takes the lock",
        Locks,
        "_acquire",
        {"if ended := shard.find_ended(key, attempt, now):": "if ended := None:"},
        breaks="8 ended",
        by=("copy",),
    ),
    Flaw(
        "an attempt whose answer was lost is not retired",
        plans,
        "acquire",
        {"retired = retire or unanswered": "retired = retire"},
        breaks="8 ended",
        by=("late request",),
    ),
    Flaw(
        "ends of attempts are forgotten",
        Shard,
        "find_ended",
        {"ended if ended is not None and ended.until > now else None": "None"},
        breaks="5 repetition",
    ),
    Flaw(
        "a release lets go of whatever is held",
        Locks,
        "_release",
        {
            "if lock is None or hold is None or hold.token != request.token:": "if lock and lock.holds:\n"
            "            attempt, hold = next(iter(lock.holds.items()))\n"
            "        if lock is None or hold is None:"
        },
        breaks="5 repetition",
    ),
    Flaw(
        "who gives up does not withdraw",
        plans,
        "acquire",
        {"if queued is not None or unanswered or retire:": "if unanswered:"},
        breaks="undo",
    ),
    Flaw(
        "a heartbeat does not tell who was handed the lock",
        Keeper,
        "answered",
        {'if told.outcome != "waiting":': 'if told.outcome == "gone":'},
        breaks="P7 turn",
        by=("lost signal",),
    ),
    Flaw(
        "who is told that its lease is broken does not ask",
        Keeper,
        "hurry",
        {"kept.renew_at = kept.hurried_at = now": "pass"},
        breaks="told",
        by=("break",),
        clients=1,
    ),
    Flaw(
        "a signal that overtakes the answer of a grant is forgotten",
        Keeper,
        "hurry",
        {"self.hurried_at = now": "pass"},
        breaks="told",
        by=("break", "late answer"),
        clients=1,
    ),
    Flaw(
        "a signal that overtakes the answer of a renewal is forgotten",
        Keeper,
        "_schedule",
        {"if kept.hurried_at >= asked:": "if self.hurried_at >= asked:"},
        breaks="told",
        by=("break", "late answer"),
        clients=1,
    ),
    Flaw(
        "trust in a hand-over counted from when its signal came",
        plans,
        "acquire",
        {"trusted_until = handed.since +": "trusted_until = clock() +"},
        breaks="3 trust",
        by=("pause",),
    ),
    Flaw(
        "trust in a hand-over counted by the store's clock",
        Keeper,
        "heard",
        {"min(0.0, signal.at - ticket.answered_at)": "signal.at - ticket.answered_at"},
        breaks="3 trust",
        by=("clock forward",),
    ),
    Flaw(
        "a winner that was handed the lock and did not come is queued again",
        Settlement,
        "_expire",
        {"hold.claimed or hold.terms.enters": "hold.claimed"},
        breaks="8 ended",
        by=("pause",),
    ),
    Flaw(
        "a renewal does not claim",
        Locks,
        "_renew_alive",
        {"hold.end, hold.claimed = end, True": "hold.end = end"},
        breaks="answers",
    ),
    Flaw(
        "a signal that overtakes that of the hand-over is forgotten",
        Keeper,
        "keep",
        {"kept.hurried_at = self.hurried_at": "kept.hurried_at = -9.0 if grant.lasts else self.hurried_at"},
        breaks="told",
        by=("break",),
    ),
    Flaw(
        "the owner is the client, whichever of its threads asks",
        Moves,
        "_want",
        {'f"{name}.{actor.begun}"': 'f"{name}.1"'},
        breaks="2 exclusion",
        clients=1,
        turns=2,
        hands=True,
    ),
]


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: flaw.name)
def test_a_planted_flaw_is_found_by_the_shortest_way(flaw: Flaw, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch, flaw.owner, flaw.function, flaw.changes)
    with pytest.raises(CounterExample) as caught:
        explore(flaw.bounds)
    example = caught.value
    assert example.invariant == flaw.breaks
    nearer = explore(replace(flaw.bounds, depth=len(example.moves) - 1))
    assert nearer.depth == len(example.moves) - 1  # all of those runs are there, and none breaks anything


@pytest.mark.parametrize("flaw", [flaw for flaw in FLAWS if flaw.by], ids=lambda flaw: flaw.name)
def test_a_flaw_that_needs_a_fault_does_no_harm_without_it(flaw: Flaw, monkeypatch: pytest.MonkeyPatch):
    """So it is the fault that finds it, and nothing that would be wrong anyway."""
    plant(monkeypatch, flaw.owner, flaw.function, flaw.changes)
    assert explore(replace(flaw.bounds, faults=0)).complete


def test_a_counter_example_tells_what_happened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    flaw = FLAWS[0]
    plant(monkeypatch, flaw.owner, flaw.function, flaw.changes)
    assert main(["--clients", "2", "--faults", "1", "--kind", "late answer", "--quiet"]) == 1
    assert capsys.readouterr().out.splitlines()[:6] == [
        "«3 trust» is broken after 3 moves:",
        "  late answer: 0-1 acquire key:a wait ttl=4  owner=0.1",
        "  0-1 acquire key:a wait ttl=4  owner=0.1 = Granted 0 for 4.000",
        "  it is 2 s",
        "  now its answer arrives: 0-1 acquire key:a wait ttl=4  owner=0.1",
        "  client 0 has key:a, until 6 s",
    ]
