"""Who waited, in real time: first come, first served (P7), and nobody waits for what is free (P8)."""

from __future__ import annotations

import math
from typing import NamedTuple

from proof.checkers.order import rules
from proof.checkers.order.clocks import Clocks
from proof.checkers.order.ledger import Key, Lease, Ticket
from proof.checkers.order.requests import Asked
from proof.checkers.order.rules import Findings
from proof.histories.records import History

GRACE = 1.0  # seconds after a fault, for connections to be made again
# Seconds that a machine may be busy with something else, beside heartbeats and claim windows. In 28 minutes
# of traffic under faults, on two cores that did other things as well, nobody waited for longer than 1.4 s.
FAIR = 1.0


class Waiting(NamedTuple):
    """A ticket, as its client knows of it."""

    told: float  # when the client was told first that it waits
    token: int  # under which it was granted, if it lived until then
    until: float  # until when it lived, if it was not
    ticket: Ticket


def check_first_come(keys: dict[str, Key], asked: Asked, clocks: Clocks, findings: Findings) -> None:
    """Who was told that it waits, before another asked for the first time, is granted before that one (P7).

    As long as it is alive: its ticket has never run out, by what the store can have seen of its heartbeats.
    """
    for key in keys.values():
        waiting = [
            Waiting(told, *_alive(ticket, key, asked, clocks), ticket)
            for ticket in key.all_tickets
            if (attempt := asked.attempts.get(ticket.attempt)) is not None
            # While a row is locked one is told to wait, without a ticket: so it is not the first such answer.
            and (told := attempt.told_of(ticket.queued_at, clocks)) < math.inf
        ]
        grants = [
            (attempt.asked, lease)
            for lease in key.leases.values()
            if (attempt := asked.attempts.get(lease.holds[0].attempt)) is not None
        ]
        findings.check(rules.FIRST_COME, len(waiting))
        waiting.sort(key=lambda each: each.told)
        grants.sort(key=lambda each: each[0])
        _compare(key, waiting, grants, asked.patience, clocks, findings)


def _alive(ticket: Ticket, key: Key, asked: Asked, clocks: Clocks) -> tuple[int, float]:
    """Return under which token a ticket was granted, if it lived until then; else until when it did."""
    if ticket.token:
        granted_at = key.leases[ticket.token].granted_at
        return (ticket.token, 0.0) if ticket.lives_at(granted_at) else (0, ticket.alive_until)
    over = ticket.gone_at or ticket.last_end
    ticket.lives_at(over)
    # Who wants to leave need not be waited for, whenever that arrives.
    return 0, min(over, ticket.alive_until, clocks.earliest(asked.attempts[ticket.attempt].let_go))


def _compare(
    key: Key,
    waiting: list[Waiting],
    grants: list[tuple[float, Lease]],
    patience: float,
    clocks: Clocks,
    findings: Findings,
) -> None:
    """Go through grants in the order in which they were asked for, beside all who were waiting by then."""
    place = 0
    last: tuple[int, Ticket | None] = 0, None
    longest: tuple[float, Ticket | None] = 0.0, None
    for called, lease in grants:
        while place < len(waiting) and waiting[place].told < called:
            told, token, until, ticket = waiting[place]
            if token > last[0]:
                last = token, ticket
            # Until when a ticket lived, and when a lease was granted, is by the store's clock: if that is set
            # meanwhile, they cannot be compared. A ticket that is not refreshed lives for its patience.
            if until > longest[0] and not clocks.steps(told - patience, told + patience):
                longest = until, ticket
            place += 1
        passed = last[1] if last[0] > lease.token else longest[1] if longest[0] > lease.granted_at else None
        if passed is not None and not clocks.steps(called - patience, called + patience):
            findings.violated(
                rules.FIRST_COME,
                key.name,
                f"{lease.owner} asked at {called:.6f} and got {lease.token} at {lease.granted_at};"
                f" {passed.owner} had been waiting with ticket {passed.number}, and got"
                f" {passed.token or 'nothing'}; it lived until {passed.alive_until}",
            )


def check_stuck(
    history: History,
    stretches: list[tuple[str, list[tuple[float, float]]]],
    patience: float,
    clocks: Clocks,
    findings: Findings,
) -> None:
    """A lock that is free, with live tickets, is granted before long, while no fault is at work (P8).

    Who is first, and alive, asks again when the lease before it should end, or is told with its next
    heartbeat; so no single one waits for long. If it dies instead, its patience is over and then it is the
    next one's turn: which may not go on like that either.
    """
    heartbeat, claim, lives = (
        float(history.run.settings.get(name, patience)) for name in ("heartbeat", "claim", "patience")
    )
    alone, together = FAIR + heartbeat + claim, FAIR + heartbeat + claim + lives
    faults = [(clocks.roughly(fault.began), clocks.roughly(fault.ended + GRACE)) for fault in history.faults]
    # A clock that was set shows what lies as far away, and its step is no time that anybody waited.
    faults += [(clocks.roughly(s.began - s.size), clocks.roughly(s.ended + s.size)) for s in clocks.stepped]
    faults.sort()
    longest = 0.0
    for key, waits in stretches:
        findings.check(rules.NOT_STUCK, len(waits))
        each = [_quiet(since, until, faults) / 1e6 for since, until in waits]
        longest = max(longest, *each)
        if max(each) > alone or sum(each) > together:
            findings.violated(
                rules.NOT_STUCK,
                key,
                f"it was free from {waits[0][0]:.0f} to {waits[-1][1]:.0f}, and for {sum(each):.1f} s of"
                " that without any fault somebody waited and nobody was granted it, one for"
                f" {max(each):.1f} s; the bounds are {together:.1f} s and {alone:.1f} s",
            )
    findings.figures["longest wait for a free lock, ms"] = round(longest * 1e3)


def _quiet(since: float, until: float, faults: list[tuple[float, float]]) -> float:
    """Return how much of a time was without faults. *faults* are in order."""
    quiet, place = 0.0, since
    for began, ended in faults:
        if ended <= place:
            continue
        if began >= until:
            break
        quiet += max(0.0, began - place)
        place = max(place, ended)
    return quiet + max(0.0, until - place)
