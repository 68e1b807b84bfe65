"""Flaws that others have had, planted in the real code one at a time.

Each is a textual replacement in one file of ``src/holdfast``. Each text to be replaced must be there exactly
once, so that a mutant cannot silently become no change at all. *trap* names the rule it breaks: numbers
are the traps of the design, P the promises, and the rest are sections of the protocol page.
"""

from __future__ import annotations

from dataclasses import dataclass

MEMORY = "stores/memory/store.py"
STATE = "stores/memory/state.py"
SQL = "stores/sqlite/statements.sql"
ROW = "stores/sql/row.py"
DECIDING = "stores/sql/deciding.py"
BATCH = "stores/sqlite/batch.py"
PLANS = "core/plans.py"
KEEPER = "core/keeper.py"
BASE = "stores/base.py"


@dataclass(frozen=True)
class Mutant:
    name: str
    trap: str
    file: str
    changes: tuple[tuple[str, str], ...]
    test: str = ""  # the one that must fail; if none is named, the simulation or the suites have to find it

    @property
    def store(self) -> str:
        """The store that shows it: the one it is in, else the faster one."""
        return "sqlite" if "stores/sql" in self.file else "memory"


MUTANTS = (
    Mutant(
        "trust counts from the answer",
        "2, P3",
        PLANS,
        (("trusted_until = asked + request.ttl - margin", "trusted_until = clock() + request.ttl - margin"),),
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
    ),
    Mutant(
        "the fast release does not look for waiters",
        "7",
        SQL,
        (("   AND waiters = 0\n   AND expires_at >", "   AND expires_at >"),),
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
    ),
    Mutant(
        "renewal revives an expired lease (memory)",
        "R3",
        MEMORY,
        (
            (
                "lock.token != lease.token or not lock.has_hold(lease.attempt, now)",
                "lock.token != lease.token or lease.attempt not in lock.holds",
            ),
        ),
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
    ),
    Mutant(
        "tokens restart with the row",
        "10, P1",
        SQL,
        (("max((SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1), t.now)", "1"),),
    ),
    Mutant(
        "a new lease keeps the token",
        "10, P1",
        STATE,
        (("        self.token = max(self.token + 1, now)\n", "        self.token = self.token or now\n"),),
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
    ),
    Mutant(
        "asking again is re-entry",
        "P6",
        MEMORY,
        (
            (
                "if hold := lock.holds.get(attempt):\n                if hold.claimed:",
                (
                    "if (hold := lock.holds.get(attempt)) and not hold.claimed:\n"
                    "                if hold.claimed:"
                ),
            ),
        ),
    ),
    Mutant(
        "asking again shortens the hold",
        "Acquire",
        SQL,
        (("ELSE max(l.expires_at, excluded.expires_at) END", "ELSE excluded.expires_at END"),),
    ),
    Mutant(
        "a dead waiter is handed the lock",
        "20",
        STATE,
        (
            (
                "            if ticket.end > now:\n                break\n",
                "            if ticket.end > 0:\n                break\n",
            ),
        ),
    ),
    Mutant(
        "the last in the queue is first",
        "P7, 22",
        SQL,
        (
            (
                "one.number = (SELECT min(number)",
                "one.number = (SELECT max(number)",
            ),
        ),
    ),
    Mutant(
        "an expired lock goes to whoever asks",
        "P7, Settle first",
        MEMORY,
        (
            (
                "                self._hand_over(shard, lock, now, post)\n            elif lock.prune_head",
                "                pass\n            elif lock.prune_head",
            ),
        ),
    ),
    Mutant(
        "refreshing a ticket does not settle",
        "P8, Renew",
        BATCH,
        (("if not holds and end > now and (head_end is None or head_end > now):", "if end:"),),
    ),
    Mutant(
        "one common end for all holds",
        "part 5, Acquire",
        MEMORY,
        (
            (
                "            hold.end = end\n",
                "            for hold in lock.holds.values():\n                hold.end = end\n",
            ),
        ),
    ),
    Mutant(
        "a hand-over needs no claim",
        "Queue and hand-over",
        MEMORY,
        (
            (
                "hold = Hold(now + ticket.claim, claimed=False)",
                "hold = Hold(now + 6 * ticket.claim, claimed=True)",
            ),
        ),
    ),
    Mutant(
        "the new head is not told",
        "Queue and hand-over",
        ROW,
        (
            (
                "        self._prune_head()\n        self._tell_head()\n        return winner.owner\n",
                "        self._prune_head()\n        return winner.owner\n",
            ),
        ),
    ),
    Mutant(
        "withdrawing is forgotten",
        "Withdraw",
        DECIDING,
        (('    lock.end_attempt("withdrawn")\n', ""),),
    ),
    Mutant(
        "an expired attempt is forgotten",
        "8th invariant",
        ROW,
        (
            (
                '        if claimed:\n            self._remember(attempt, "expired"',
                '        if claimed is None:\n            self._remember(attempt, "expired"',
            ),
        ),
    ),
    Mutant(
        "ends are remembered for a second",
        "8th invariant",
        BASE,
        (
            ('"released": 60_000_000', '"released": 1_000_000'),
            ('"withdrawn": 60_000_000', '"withdrawn": 1_000_000'),
        ),
    ),
    Mutant(
        "an unanswered attempt is not retired",
        "Release",
        PLANS,
        (("retire=retire or unanswered,", "retire=retire,"),),
    ),
    Mutant(
        "a refused try is not retired where requests repeat",
        "Undo",
        PLANS,
        (("if queued is not None or unanswered or retire:", "if queued is not None or unanswered:"),),
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
    ),
    Mutant(
        "waiters are not counted down",
        "9th invariant",
        ROW,
        (
            (
                "key=self.key, number=number)\n        self.waiters -= 1\n",
                "key=self.key, number=number)\n",
            ),
        ),
    ),
    Mutant(
        "sweeping deletes held rows",
        "Sweep, P2",
        MEMORY,
        (
            (
                "visited is not None and visited.owner is None and visited.freed_at <= idle_since",
                "visited is not None",
            ),
        ),
    ),
    Mutant(
        "sweeping does not raise the floor",
        "10, Sweep",
        BATCH,
        (('            run("raise_floor", token=token)\n', ""),),
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
    ),
)
