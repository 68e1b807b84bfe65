"""Flaws in what goes beyond plain locks: terms, operations, deadlocks, the feed. Each names its test."""

from __future__ import annotations

from proof.mutants.mutant import (
    ACQUIRING,
    BASE,
    CHANGING,
    CIRCLES,
    DEADLOCKS,
    EVENTS,
    FAMILY,
    FEED,
    LEAVING,
    LOCK,
    MEMORY_SUITE,
    OPERATIONS,
    PLANS,
    SETTLING,
    SQLITE_SUITE,
    SWEEPING,
    Mutant,
)

FAMILY_MUTANTS = (
    Mutant(
        "readers do not fit beside each other",
        "Terms, P2",
        FAMILY,
        (('else alone or mode == "shared"', "else alone"),),
        test=f"{MEMORY_SUITE}::test_readers_hold_it_together[sync]",
    ),
    Mutant(
        "a reader fits beside a writer",
        "Terms, P2",
        FAMILY,
        (("        if each.mode != mode:\n            return False\n", ""),),
        test=f"{MEMORY_SUITE}::test_readers_wait_for_a_writer[sync]",
    ),
    Mutant(
        "there is one permit more",
        "Terms, P2",
        FAMILY,
        (("return taken <= permits if", "return taken <= permits + 1 if"),),
        test=f"{MEMORY_SUITE}::test_as_many_hold_it_as_there_are_permits[sync]",
    ),
    Mutant(
        "permits have no weight",
        "Terms, P2",
        FAMILY,
        (
            ("wanted.mode, wanted.take, True", "wanted.mode, 1, True"),
            ("        taken += each.take\n", "        taken += 1\n"),
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
        "whoever is next is woken for each permit that is passed on",
        "Queue and hand-over",
        BASE,
        (("    return 10 * expires_in < 9 * claim\n", "    return expires_in < claim\n"),),
        test=f"{MEMORY_SUITE}::test_the_next_is_not_woken_for_a_permit_that_was_passed_on_a_moment_ago[sync]",
    ),
    Mutant(
        "a reader waits to become a writer",
        "Re-entry",
        ACQUIRING,
        (('return r.Refused("upgrade") if request.terms.mode == "exclusive" else None', "return None"),),
        test=f"{MEMORY_SUITE}::test_a_reader_cannot_become_a_writer[sync]",
    ),
    Mutant(
        "entering it shared makes a lease shared",
        "Re-entry",
        ACQUIRING,
        (
            (
                "request.client, lease.terms, lease.token",
                "request.client, request.terms, lease.token",
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
        LOCK,
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
        (('dict.fromkeys(("done", "failed"), 600_000_000)', '{"done": 60_000_000, "failed": 600_000_000}'),),
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
        (
            (
                "            if hold.terms.operation and hold.claimed:\n",
                "            if hold.terms.operation:\n",
            ),
        ),
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
        (("if hold.claimed:\n                lock.shut", "if hold.end:\n                lock.shut"),),
        test=f"{MEMORY_SUITE}::test_a_winner_that_did_not_come_does_not_shut_it[sync]",
    ),
    Mutant(
        "sweeping opens a shut lock",
        "Delay, Sweep",
        SWEEPING,
        (
            (
                "not lock.holds and lock.shut_until <= now and lock.used_at()",
                "not lock.holds and lock.used_at()",
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
        (('shard.ended[key, attempt] = EndedAttempt("deadlocked"', 'EndedAttempt("deadlocked"'),),
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
    Mutant(
        "who watches is not told",
        "The feed",
        FEED,
        (("world.watchers.add(request.address)", "world.watchers.discard(request.address)"),),
        test=f"{MEMORY_SUITE}::test_who_watches_is_told_that_there_is_something[sync]",
    ),
    Mutant(
        "sqlite: who watches is told of every event",
        "The feed",
        "stores/sqlite/watchers.py",
        (('                os.unlink(f"{self._directory}/{name}")\n', "                pass\n"),),
        test=f"{SQLITE_SUITE}::test_many_events_are_one_signal_until_the_next_look[sync]",
    ),
    Mutant(
        "who is told of events never looks by itself",
        "The feed",
        PLANS,
        (("WATCH_ANYWAY if answer.tells", "1e9 if answer.tells"),),
        test="tests/unit/test_plans_release.py::test_who_is_told_of_events_looks_seldom_and_at_once_when_told",
    ),
)
