"""Flaws that others have had, planted in the real code one at a time.

Each is a textual replacement in one file of ``src/holdfast``. Each text to be replaced must be there exactly
once, so that a mutant cannot silently become no change at all. *trap* names the rule it breaks: numbers
are the traps of the design, P the promises, and the rest are sections of the protocol page.
"""

from __future__ import annotations

from dataclasses import dataclass

STATE = "stores/memory/state.py"
ACQUIRING = "stores/memory/acquiring.py"
RENEWING = "stores/memory/renewing.py"
SETTLING = "stores/memory/settling.py"
LEAVING = "stores/memory/leaving.py"
CHANGING = "stores/memory/changing.py"
OPERATIONS = "stores/memory/operations.py"
CIRCLES = "stores/memory/circles.py"
FEED = "stores/memory/feed.py"
SWEEPING = "stores/memory/sweeping.py"
SQL = "stores/sqlite/statements.sql"
TICKETS = "stores/sql/tickets.py"
SQL_SETTLING = "stores/sql/settling.py"
DECIDING = "stores/sql/deciding.py"
BATCH = "stores/sqlite/batch.py"
PLANS = "core/plans.py"
KEEPER = "core/keeper.py"
BASE = "stores/base.py"
FAMILY = "core/family.py"
DEADLOCKS = "core/deadlocks.py"
EVENTS = "core/events.py"

MEMORY_SUITE = "tests/conformance/test_memory.py::TestMemory"
SQLITE_SUITE = "tests/conformance/test_sqlite.py::TestSQLite"


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
        RENEWING,
        (("hold.token != lease.token or hold.end <= now:", "hold.token != lease.token:"),),
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
        (
            (
                "SELECT :key,\n       max((SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1), t.now)",
                "SELECT :key,\n       1",
            ),
        ),
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
        ACQUIRING,
        (
            (
                "if hold := lock.holds.get(attempt):\n",
                "if (hold := lock.holds.get(attempt)) and not hold.claimed:\n",
            ),
        ),
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
        "an expired lock is handed to nobody",
        "P8, Settle first",
        SETTLING,
        (
            (
                "        if lock.tickets:\n            self._serve(shard, lock, now, post)\n",
                "        if lock.tickets and lock.holds:\n            self._serve(shard, lock, now, post)\n",
            ),
        ),
    ),
    Mutant(
        "refreshing a ticket does not settle",
        "P8, Renew",
        BATCH,
        (("if simple and end > now and (head_end is None or head_end > now):", "if simple:"),),
    ),
    Mutant(
        "one common end for all holds",
        "part 5, Acquire",
        RENEWING,
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
        SETTLING,
        (
            ("            end = now + ticket.claim\n", "            end = now + 6 * ticket.claim\n"),
            ("ticket.terms, now, end, claimed=False)", "ticket.terms, now, end, claimed=True)"),
        ),
    ),
    Mutant(
        "the new head is not told",
        "Queue and hand-over",
        SQL_SETTLING,
        (("    if head_changed or tickets.count < before:\n", "    if head_changed:\n"),),
    ),
    Mutant(
        "withdrawing is forgotten",
        "Withdraw",
        DECIDING,
        (('    lock.ended.remember(lock.asking, "withdrawn", lock.now)\n', ""),),
    ),
    Mutant(
        "an expired attempt is forgotten",
        "8th invariant",
        SQL_SETTLING,
        (("        if hold.claimed:  # else", "        if hold.claimed is None:  # else"),),
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
        "waiters are miscounted",
        "9th invariant",
        TICKETS,
        (
            (
                "        )\n        self.count += 1\n",
                "        )\n        self.count += 1 + (number % 5 == 0)\n",
            ),
        ),
    ),
    Mutant(
        "sweeping deletes held rows",
        "Sweep, P2",
        SWEEPING,
        (("return not lock.holds and lock.shut_until <= now and", "return lock.shut_until <= now and"),),
    ),
    Mutant(
        "sweeping does not raise the floor",
        "10, Sweep",
        BATCH,
        (('            run("raise_floor", token=token)\n', ""),),
        test=f"{SQLITE_SUITE}::test_tokens_rise_through_a_sweep_even_if_time_went_back[sync]",
    ),
    Mutant(
        "a signal that overtakes an answer is forgotten",
        "Renewing",
        KEEPER,
        (("        elif kept.hurried_at >= asked:", "        elif kept.hurried_at > asked + ttl:"),),
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
    ),
    Mutant(
        "readers do not fit beside each other",
        "Terms, P2",
        FAMILY,
        (('return wanted.mode == "shared" or not others', "return not others"),),
        test=f"{MEMORY_SUITE}::test_readers_hold_it_together[sync]",
    ),
    Mutant(
        "a reader fits beside a writer",
        "Terms, P2",
        FAMILY,
        (("    if any(each.mode != wanted.mode for each in others):\n        return False\n", ""),),
        test=f"{MEMORY_SUITE}::test_readers_wait_for_a_writer[sync]",
    ),
    Mutant(
        "there is one permit more",
        "Terms, P2",
        FAMILY,
        (("+ wanted.take <= permits", "+ wanted.take <= permits + 1"),),
        test=f"{MEMORY_SUITE}::test_as_many_hold_it_as_there_are_permits[sync]",
    ),
    Mutant(
        "permits have no weight",
        "Terms, P2",
        FAMILY,
        (
            (
                "return sum(each.take for each in others) + wanted.take <= permits",
                "return len(others) + 1 <= permits",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_a_weight_is_how_many_are_taken[sync]",
    ),
    Mutant(
        "a reader passes a waiting writer",
        "Terms, P7",
        ACQUIRING,
        (
            (
                "if not lock.tickets and lock.shut_until <= now and",
                'if (not lock.tickets or terms.mode == "shared") and lock.shut_until <= now and',
            ),
        ),
        test=f"{MEMORY_SUITE}::test_a_reader_waits_behind_a_waiting_writer[sync]",
    ),
    Mutant(
        "one reader comes in at a time",
        "Terms, P8",
        SETTLING,
        (
            (
                "            first, changed = first or ticket.owner, True\n",
                "            first, changed = first or ticket.owner, True\n            break\n",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_all_readers_at_the_head_come_in_at_once[sync]",
    ),
    Mutant(
        "whoever leaves the queue lets nobody in",
        "Terms, P8",
        SETTLING,
        (
            (
                "                self._serve(shard, lock, now, post, changed=True)\n",
                "                lock.tell_head(now, post)\n",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_a_writer_that_withdraws_lets_in_all_readers_behind_it[sync]",
    ),
    Mutant(
        "a reader waits to become a writer",
        "Re-entry",
        ACQUIRING,
        (('return Refused("upgrade") if request.terms.mode == "exclusive" else None', "return None"),),
        test=f"{MEMORY_SUITE}::test_a_reader_cannot_become_a_writer[sync]",
    ),
    Mutant(
        "entering it shared makes a lease shared",
        "Re-entry",
        ACQUIRING,
        (
            (
                "            lease.terms,\n            lease.token,\n",
                "            request.terms,\n            lease.token,\n",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_the_owner_of_an_exclusive_lease_enters_it_shared_and_it_stays_exclusive[sync]",
    ),
    Mutant(
        "permits are reentrant",
        "Re-entry",
        ACQUIRING,
        (('        if lock.mode == "permits":\n            return None\n', ""),),
        test=f"{MEMORY_SUITE}::test_permits_are_not_reentrant[sync]",
    ),
    Mutant(
        "a downgrade lets nobody in",
        "Downgrade",
        CHANGING,
        (
            (
                "                self._serve(shard, lock, now, post)\n            return lock.granted",
                "            return lock.granted",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_the_readers_at_the_head_are_let_in[sync]",
    ),
    Mutant(
        "a nested hold is downgraded",
        "Downgrade",
        CHANGING,
        (("if len(lock.lease(hold.token)) > 1:", "if len(lock.lease(hold.token)) > 9:"),),
        test=f"{MEMORY_SUITE}::test_with_other_holds_it_is_refused[sync]",
    ),
    Mutant(
        "whoever asks decides how many permits there are",
        "Capacity",
        ACQUIRING,
        (("if not permits or believed not in (0, permits):", "if not permits:"),),
        test=f"{MEMORY_SUITE}::test_whoever_believes_another_number_is_told_the_right_one[sync]",
    ),
    Mutant(
        "more permits serve nobody",
        "Resize",
        CHANGING,
        (
            (
                "            self._serve(shard, lock, now, post, changed=next(",
                "            dict(changed=next(",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_more_permits_are_given_to_who_waits[sync]",
    ),
    Mutant(
        "who wants more than there are waits for ever",
        "Resize",
        CHANGING,
        (("ticket.terms.take > permits:", "ticket.terms.take > 9 * permits:"),),
        test=f"{MEMORY_SUITE}::test_a_ticket_that_takes_more_than_there_are_now_is_refused[sync]",
    ),
    Mutant(
        "who waits for a permit watches the last end",
        "Positions and ends",
        STATE,
        (('if terms.mode == self.mode == "permits":', 'if terms.mode == self.mode == "":'),),
        test=f"{MEMORY_SUITE}::test_a_dead_holders_permit_comes_back_at_its_own_end[sync]",
    ),
    Mutant(
        "breaking one lease breaks all",
        "Break",
        LEAVING,
        (
            (
                "holder in lock.holders(now) if request.token in (None, holder.token)]",
                "holder in lock.holders(now)]",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_an_operator_breaks_one_lease_by_its_token[sync]",
    ),
    Mutant(
        "success is handed over",
        "Operations",
        LEAVING,
        (
            (
                "if outcome is not None and outcome.succeeded:",
                "if outcome is not None and outcome.succeeded and not lock.tickets:",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_nobody_inherits_what_is_done[sync]",
    ),
    Mutant(
        "dead tickets are told",
        "Operations",
        OPERATIONS,
        (("            if ticket.end > now:\n", "            if ticket.end > 0:\n"),),
        test=f"{MEMORY_SUITE}::test_a_dead_ticket_is_not_told[sync]",
    ),
    Mutant(
        "everybody who waits is woken, not every instance",
        "Operations, R19",
        OPERATIONS,
        (("for instance in instances]", "for instance in list(instances) * told]"),),
        test=f"{MEMORY_SUITE}::test_an_instance_is_told_once_however_many_wait_in_it[sync]",
    ),
    Mutant(
        "an outcome is remembered for a minute",
        "Operations",
        BASE,
        (('"done": 600_000_000', '"done": 60_000_000'),),
        test=f"{MEMORY_SUITE}::test_an_outcome_is_remembered_for_ten_minutes[sync]",
    ),
    Mutant(
        "a nested hold says how it ended",
        "Operations",
        LEAVING,
        (
            (
                "if left and operation and request.outcome is not None:",
                "if left and operation and request.outcome == 0:",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_only_the_last_hold_can_say_how_it_ended[sync]",
    ),
    Mutant(
        "only the last failure is passed on",
        "Operations",
        OPERATIONS,
        (("lock.failures = (*lock.failures, failure)[-MOST_FAILURES:]", "lock.failures = (failure,)"),),
        test=f"{MEMORY_SUITE}::test_the_next_in_line_is_told_what_went_wrong[sync]",
    ),
    Mutant(
        "one failure more than allowed",
        "Giving up",
        OPERATIONS,
        (
            (
                "if 0 < hold.terms.max_attempts <= lock.failed:",
                "if 0 < hold.terms.max_attempts < lock.failed:",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_after_so_many_failures_everybody_gives_up[sync]",
    ),
    Mutant(
        "who never claimed it has failed",
        "Operations",
        SETTLING,
        (("            if operation and hold.claimed:\n", "            if operation:\n"),),
        test=f"{MEMORY_SUITE}::test_who_never_claimed_it_has_not_failed[sync]",
    ),
    Mutant(
        "an operation leaves no trace",
        "Operations, R27",
        EVENTS,
        (("(operation or kind in NOTABLE)", "kind in NOTABLE"),),
        test=f"{MEMORY_SUITE}::test_the_history_of_an_operation_is_kept_as_notable[sync]",
    ),
    Mutant(
        "a shut lock is granted",
        "Delay",
        ACQUIRING,
        (("if not lock.tickets and lock.shut_until <= now and", "if not lock.tickets and"),),
        test=f"{MEMORY_SUITE}::test_a_lease_that_expires_shuts_the_lock[sync]",
    ),
    Mutant(
        "a shut lock is handed over",
        "Delay",
        SETTLING,
        (("while lock.tickets and lock.shut_until <= now:", "while lock.tickets:"),),
        test=f"{MEMORY_SUITE}::test_those_who_wait_are_served_when_it_opens[sync]",
    ),
    Mutant(
        "a winner that did not come shuts the lock",
        "Delay",
        SETTLING,
        (("if hold.claimed and hold.terms.delay:", "if hold.terms.delay:"),),
        test=f"{MEMORY_SUITE}::test_a_winner_that_did_not_come_does_not_shut_it[sync]",
    ),
    Mutant(
        "sweeping opens a shut lock",
        "Delay, Sweep",
        SWEEPING,
        (
            (
                "not lock.holds and lock.shut_until <= now and lock.freed_at",
                "not lock.holds and lock.freed_at",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_sweeping_does_not_open_it[sync]",
    ),
    Mutant(
        "the oldest wait is the victim",
        "Deadlocks",
        DEADLOCKS,
        (("newest = max(", "newest = min("),),
        test=f"{MEMORY_SUITE}::test_the_newest_wait_is_the_victim_whoever_finds_out[sync]",
    ),
    Mutant(
        "a holder who can go on is taken to be stuck",
        "Deadlocks",
        DEADLOCKS,
        (
            (
                "held = [hold.terms for hold in state.holds if hold.owner in stuck]",
                "held = [hold.terms for hold in state.holds]",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_a_semaphore_is_no_part_of_a_circle_while_one_holder_can_go_on[sync]",
    ),
    Mutant(
        "nobody waits for who is before it in the queue",
        "Deadlocks",
        DEADLOCKS,
        (("                    break  # and nobody", "                    continue  # and nobody"),),
        test=f"{MEMORY_SUITE}::test_a_reader_behind_a_writer[sync]",
    ),
    Mutant(
        "an expired hold is part of a circle",
        "Deadlocks",
        CIRCLES,
        (("                if hold.end > self._now\n", ""),),
        test=f"{MEMORY_SUITE}::test_a_hold_that_expired_is_no_part_of_a_circle[sync]",
    ),
    Mutant(
        "an expired ticket is part of a circle",
        "Deadlocks",
        CIRCLES,
        (("                if t.end > self._now\n", ""),),
        test=f"{MEMORY_SUITE}::test_a_ticket_that_expired_is_no_part_of_a_circle[sync]",
    ),
    Mutant(
        "the victim is forgotten",
        "Deadlocks, P6",
        CIRCLES,
        (("            shard.ended[key, attempt] = ended\n", ""),),
        test=f"{MEMORY_SUITE}::test_the_victim_is_told_again_if_it_asks_again[sync]",
    ),
    Mutant(
        "events get another place when they are read again",
        "The feed",
        FEED,
        (("if events[n - 1].id), 0)", "if not events[n - 1].id), 0)"),),
        test=f"{MEMORY_SUITE}::test_there_is_one_order_that_only_grows[sync]",
    ),
    Mutant(
        "a page of the feed has no end",
        "The feed",
        FEED,
        (("if len(found) == request.limit:", "if len(found) == -1:"),),
        test=f"{MEMORY_SUITE}::test_pages_are_of_a_limited_length[sync]",
    ),
    Mutant(
        "a key is a prefix",
        "The feed",
        FEED,
        (
            (
                "event.key == request.key if request.exact",
                "event.key.startswith(request.key) if request.exact",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_a_key_is_that_key[sync]",
    ),
)
