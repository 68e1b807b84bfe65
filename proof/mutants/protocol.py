"""Flaws that others have had, planted one at a time in the protocol, and in memory and SQLite."""

from __future__ import annotations

from proof.mutants.databases import SHARED
from proof.mutants.mutant import (
    ACQUIRING,
    BASE,
    BATCHES,
    DECIDING,
    KEEPER,
    LOCK,
    PLANS,
    RENEWING,
    SETTLING,
    SQL,
    SQL_SETTLING,
    SQLITE_SUITE,
    SWEEPING,
    TICKETS,
    Mutant,
)

MUTANTS = (
    Mutant(
        "trust counts from the answer",
        "2, P3",
        PLANS,
        (("trusted_until = asked + request.ttl - margin", "trusted_until = clock() + request.ttl - margin"),),
        seed=0,
    ),
    Mutant(
        "renewal is trusted from its answer",
        "2, P3",
        KEEPER,
        (
            (
                "kept.trusted_until = max(kept.trusted_until, asked + ttl - kept.margin)",
                "kept.trusted_until = kept.renew_at + kept.grant.ttl",
            ),
        ),
        seed=0,
    ),
    Mutant(
        "an error extends the trust",
        "P3, Renewing",
        KEEPER,
        (
            (
                "        kept.trouble = trouble\n",
                "        kept.trouble = trouble\n        kept.trusted_until = now + kept.grant.ttl\n",
            ),
        ),
        seed=5,
    ),
    Mutant(
        "a lease is lost only when the store says so",
        "P3, Losing",
        KEEPER,
        (
            (
                "if self.lost is None and now >= self.trusted_until:",
                "if self.lost is None and now >= self.stop_at:",
            ),
            ("(min(kept.renew_at, kept.trusted_until) for kept in", "(kept.renew_at for kept in"),
        ),
        seed=2,
    ),
    Mutant(
        "an upsert takes a held lock",
        "3",
        SQL,
        (
            (
                (
                    "            ELSE l.attempt = excluded.attempt AND l.expires_at > excluded.granted_at"
                    " AND (l.claimed OR :long)"
                ),
                "            ELSE :long OR 1",
            ),
        ),
        seed=3,
    ),
    Mutant(
        "the fast path takes expired rows",
        "store rules",
        SQL,
        (
            (
                "WHERE CASE WHEN l.owner IS NULL THEN l.waiters = 0",
                "WHERE CASE WHEN l.owner IS NULL OR l.expires_at <= excluded.granted_at THEN l.waiters = 0",
            ),
            (
                "SET token      = CASE WHEN l.owner IS NULL THEN",
                "SET token      = CASE WHEN l.owner IS NULL OR l.expires_at <= excluded.granted_at THEN",
            ),
        ),
        seed=53,
    ),
    Mutant(
        "the fast release does not look for waiters",
        "7",
        SQL,
        (("   AND waiters = 0 AND notes IS NULL\n", "   AND notes IS NULL\n"),),
        seed=3,
    ),
    Mutant(
        "release by key alone",
        "8, P5",
        SQL,
        (
            (
                "WHERE lock_key = :key AND attempt = :attempt AND token = :token\n   AND waiters",
                "WHERE lock_key = :key AND coalesce(:attempt, :token) IS NOT NULL\n   AND waiters",
            ),
        ),
        seed=3,
    ),
    Mutant(
        "renewal by key alone",
        "9, P5",
        SQL,
        (
            (
                "AND attempt = :attempt AND token = :token\n   AND expires_at > :now AND expires_at <= :end",
                "AND :attempt IS NOT NULL AND :token > 0 AND expires_at > :now AND expires_at <= :end",
            ),
        ),
        seed=0,
    ),
    Mutant(
        "renewal revives an expired lease (memory)",
        "R3",
        RENEWING,
        (("hold.token != lease.token or hold.end <= now:", "hold.token != lease.token:"),),
        seed=2,
    ),
    Mutant(
        "renewal revives an expired lease (sqlite)",
        "R3",
        SQL,
        (
            (
                "   AND expires_at > :now AND expires_at <= :end",
                "   AND :now IS NOT NULL AND expires_at <= :end",
            ),
        ),
        test=f"{SQLITE_SUITE}::test_an_expired_lease_cannot_be_renewed[sync]",
    ),
    Mutant(
        "a batch revives holds that are over",
        "R3",
        "stores/sql/rules/renewals.py",
        (("if hold is None or before <= now:", "if hold is None:"),),
        test=f"{SQLITE_SUITE}::test_several_holds_of_one_lease_are_renewed_each_for_itself[sync]",
    ),
    Mutant(
        "a batch renews holds whatever the token",
        "P5",
        SQL,
        (("\n        AND h.token = json_extract(a.value, '$.token')", ""),),
        test=f"{SQLITE_SUITE}::test_leases_of_all_kinds_are_one_batch[sync]",
    ),
    Mutant(
        "a batch does not bring the row of the lock up to its holds",
        "P2",
        SQL,
        (("SET expires_at = max(l.expires_at, :end),", "SET expires_at = max(l.expires_at, :end * 0),"),),
        test=f"{SQLITE_SUITE}::test_leases_of_all_kinds_are_one_batch[sync]",
    ),
    Mutant(
        "tokens restart with the row",
        "10, P1",
        SQL,
        (
            (
                "SELECT :key,\n       max((SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1), t.now)",
                "SELECT :key,\n       1",
            ),
        ),
        seed=7,
    ),
    Mutant(
        "a new lease keeps the token",
        "10, P1",
        LOCK,
        (("        self.token = max(self.token + 1, now)\n", "        self.token = self.token or now\n"),),
        seed=0,
    ),
    Mutant(
        "asking again is another attempt",
        "17, P6",
        PLANS,
        (
            (
                "yield Wait(request.key, request.attempt, again_at)\n                continue",
                'request = replace(request, attempt=f"{first_attempt}-{failures}")\n                continue',
            ),
        ),
        seed=0,
    ),
    Mutant(
        "asking again is re-entry",
        "P6",
        ACQUIRING,
        (
            (
                "if hold := lock.holds.get(attempt):\n",
                "if (hold := lock.holds.get(attempt)) and not hold.claimed:\n",
            ),
        ),
        seed=0,
    ),
    Mutant(
        "asking again shortens the hold",
        "Acquire",
        SQL,
        (("ELSE max(l.expires_at, excluded.expires_at) END", "ELSE excluded.expires_at END"),),
        test=f"{SQLITE_SUITE}::test_asking_again_never_moves_the_end_back[sync]",
    ),
    Mutant(
        "a dead waiter is handed the lock",
        "20",
        LOCK,
        (
            (
                "            if ticket.end > now:\n                break\n",
                "            if ticket.end > 0:\n                break\n",
            ),
        ),
        seed=1,
    ),
    Mutant(
        "the last in the queue is first",
        "P7, 22",
        SHARED,
        (
            (
                "one.number = (SELECT min(number)",
                "one.number = (SELECT max(number)",
            ),
        ),
        seed=0,
    ),
    Mutant(
        "an expired lock is handed to nobody",
        "P8, Settle first",
        SETTLING,
        (
            (
                "        if lock.tickets:\n            self._serve(shard, lock, now, post)\n",
                "        if lock.tickets and lock.holds:\n            self._serve(shard, lock, now, post)\n",
            ),
        ),
        seed=0,
    ),
    Mutant(
        "refreshing a ticket does not settle",
        "P8, Renew",
        BATCHES,
        ((" or self.end <= self.at or head_is_over:", ":"),),
        seed=1,
    ),
    Mutant(
        "one common end for all holds",
        "Acquire, store rules",
        RENEWING,
        (
            (
                "hold.end, hold.claimed = end, True\n            return",
                "for hold in lock.holds.values():\n                hold.end = end\n            return",
            ),
        ),
        seed=0,
    ),
    Mutant(
        "a hand-over needs no claim",
        "Queue and hand-over",
        SETTLING,
        (
            ("            end = now + ticket.claim\n", "            end = now + 6 * ticket.claim\n"),
            ("ticket.terms, now, end, claimed=False)", "ticket.terms, now, end, claimed=True)"),
        ),
        seed=0,
    ),
    Mutant(
        "the new head is not told",
        "Queue and hand-over",
        SQL_SETTLING,
        (("    if head_changed or tickets.count < before:\n", "    if head_changed:\n"),),
        seed=2,
    ),
    Mutant(
        "withdrawing is forgotten",
        "Withdraw",
        DECIDING,
        (('    lock.ended.remember(lock.asking, "withdrawn", lock.now)\n', ""),),
        seed=0,
    ),
    Mutant(
        "an expired attempt is forgotten",
        "8th invariant",
        SQL_SETTLING,
        (("if hold.claimed or hold.terms.enters:  # otherwise", "if hold.claimed is None:  # otherwise"),),
        seed=0,
    ),
    Mutant(
        "ends are remembered for a second",
        "8th invariant",
        BASE,
        (
            (
                '"refused"), 60_000_000),\n',
                '"refused"), 60_000_000),\n    **dict.fromkeys(("released", "withdrawn"), 1_000_000),\n',
            ),
        ),
        seed=0,
    ),
    Mutant(
        "an unanswered attempt is not retired",
        "Release",
        PLANS,
        (("retired = retire or unanswered", "retired = retire"),),
        seed=11,
    ),
    Mutant(
        "a refused try is not retired where requests repeat",
        "Undo",
        PLANS,
        (("if queued is not None or unanswered or retire:", "if queued is not None or unanswered:"),),
        seed=0,
    ),
    Mutant(
        "giving up leaves the ticket",
        "Undo, R21",
        PLANS,
        (
            (
                "    except Abandoned:\n        yield from _undo(request)\n        raise\n",
                "    except Abandoned:\n        raise\n",
            ),
        ),
        seed=1,
    ),
    Mutant(
        "waiters are miscounted",
        "9th invariant",
        TICKETS,
        (
            (
                "        self.count += 1\n",
                "        self.count += 1 + (number % 5 == 0)\n",
            ),
        ),
        seed=0,
    ),
    Mutant(
        "sweeping deletes held rows",
        "Sweep, P2",
        SWEEPING,
        (("return not lock.holds and lock.shut_until <= now and", "return lock.shut_until <= now and"),),
        seed=0,
    ),
    Mutant(
        "sweeping does not raise the floor",
        "10, Sweep",
        BATCHES,
        (('        fetch("raise_floor", token=max(token for _, token in idle))\n', ""),),
        test=f"{SQLITE_SUITE}::test_tokens_rise_through_a_sweep_even_if_time_went_back[sync]",
    ),
    Mutant(
        "a signal that overtakes an answer is forgotten",
        "Renewing",
        KEEPER,
        (("        if kept.hurried_at >= asked:  #", "        if kept.hurried_at > asked + ttl:  #"),),
        test="tests/unit/test_keeper.py::test_a_signal_while_a_renewal_is_under_way_is_asked_about_again",
    ),
    Mutant(
        "heartbeats come after the ticket's end",
        "P7, R13",
        KEEPER,
        (
            (
                "Ticket(key, attempt, now + self.settings.heartbeat)",
                "Ticket(key, attempt, now + 2 * self.settings.patience)",
            ),
        ),
        seed=14,
    ),
)
