"""Flaws in locks that stay taken, and in results that are kept. Each names its test."""

from __future__ import annotations

from proof.mutants.mutant import (
    ACQUIRING,
    DECIDING,
    LEAVING,
    LOCK,
    MEMORY_SUITE,
    PLANS,
    SETTLING,
    SQL,
    SQLITE_SUITE,
    SWEEPING,
    Mutant,
)

ROW = "stores/sql/rules/lock.py"
LEASES = "client/holdings.py"

STAY_MUTANTS = (
    Mutant(
        "a lock that is released does not stay taken",
        "Terms, P2",
        LEAVING,
        (("            if not left:\n                lock.shut(hold, now)\n", ""),),
        test=f"{MEMORY_SUITE}::test_a_release_keeps_it_taken_until_it_was_long_enough[sync]",
    ),
    Mutant(
        "sqlite: a lock that is released does not stay taken",
        "Terms, P2",
        DECIDING,
        (("    if not left:\n        lock.shut(hold)\n", ""),),
        test=f"{SQLITE_SUITE}::test_a_release_keeps_it_taken_until_it_was_long_enough[sync]",
    ),
    Mutant(
        "at least counts from the release",
        "Terms",
        LOCK,
        (("until = hold.since + micros(terms.at_least)", "until = now + micros(terms.at_least)"),),
        test=f"{MEMORY_SUITE}::test_a_release_keeps_it_taken_until_it_was_long_enough[sync]",
    ),
    Mutant(
        "sqlite: at least counts from the release",
        "Terms",
        ROW,
        (("until = hold.granted_at + micros(", "until = self.now + micros("),),
        test=f"{SQLITE_SUITE}::test_a_release_keeps_it_taken_until_it_was_long_enough[sync]",
    ),
    Mutant(
        "a grant that nobody knew of keeps the lock taken",
        "Terms",
        LEAVING,
        (("if request.held and hold.claimed and", "if hold.claimed and"),),
        test=f"{MEMORY_SUITE}::test_to_withdraw_what_nobody_knew_of_does_not_keep_it_taken[sync]",
    ),
    Mutant(
        "a release that is made up for does not keep the lock taken",
        "Terms",
        LEASES,
        (("Withdraw(grant.key, grant.attempt, held=True)", "Withdraw(grant.key, grant.attempt)"),),
        test="tests/clients/test_pursuing.py::test_a_release_that_is_made_up_for_keeps_the_lock_taken[sync]",
    ),
    Mutant(
        "re-entry does not keep the lease taken for longer",
        "Terms",
        ACQUIRING,
        (("if request.terms.at_least > lease.terms.at_least:", "if request.terms.at_least > 1e9:"),),
        test=f"{MEMORY_SUITE}::test_the_longest_of_a_lease_counts_whichever_hold_is_left_last[sync]",
    ),
    Mutant(
        "a kept result is told after its time",
        "Operations",
        SETTLING,
        (("if lock.kept is not None and lock.kept.until <= now:", "if lock.kept is not None and now < 0:"),),
        test=f"{MEMORY_SUITE}::test_late_comers_are_told_the_result[sync]",
    ),
    Mutant(
        "sqlite: a kept result is told after its time",
        "Operations",
        ROW,
        (("self.notes.kept.until <= self.now:", "self.notes.kept.until <= 0:"),),
        test=f"{SQLITE_SUITE}::test_late_comers_are_told_the_result[sync]",
    ),
    Mutant(
        "a key is forgotten while its result is kept",
        "Operations",
        SWEEPING,
        (("lock.used_at() <= since", "lock.freed_at <= since"),),
        test=f"{MEMORY_SUITE}::test_sweeping_does_not_forget_it_before_its_time[sync]",
    ),
    Mutant(
        "sqlite: a key is forgotten while its result is kept",
        "Operations",
        ROW,
        (("return freed_at if kept is None else max(freed_at, kept.until)", "return freed_at"),),
        test=f"{SQLITE_SUITE}::test_sweeping_does_not_forget_it_before_its_time[sync]",
    ),
    Mutant(
        "sqlite: the fast release forgets until when a result is kept",
        "Operations",
        SQL,
        (("   AND waiters = 0 AND notes IS NULL\n", "   AND waiters = 0\n"),),
        test=f"{SQLITE_SUITE}::test_sweeping_does_not_forget_it_after_a_plain_lock[sync]",
    ),
    Mutant(
        "sqlite: the text of a kept result is forgotten after ten minutes",
        "Operations",
        "stores/sql/rules/operations.py",
        (("        until_at = max(until_at, until)\n", ""),),
        test=f"{SQLITE_SUITE}::test_sweeping_does_not_forget_it_before_its_time[sync]",
    ),
    Mutant(
        "a failure is kept",
        "Operations",
        LEAVING,
        (
            (
                "if outcome is not None and outcome.succeeded:",
                "if outcome is not None and (outcome.succeeded or outcome.keep):",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_a_failure_is_not_kept[sync]",
    ),
    Mutant(
        "what is done again is told from the time before",
        "Operations",
        LOCK,
        (
            (
                "        if terms.operation:\n            self.kept = None",
                "        if False:\n            pass",
            ),
        ),
        test=f"{MEMORY_SUITE}::test_what_is_done_again_and_fails_leaves_nothing[sync]",
    ),
    Mutant(
        "a copy of a question that was answered with a kept result takes the lock",
        "Operations",
        PLANS,
        (("if answer.kept and retired:", "if answer.kept and not request.key:"),),
        test="tests/unit/test_plans_acquire.py"
        "::test_a_kept_result_leaves_no_copy_of_the_question_that_could_take_the_lock",
    ),
    Mutant(
        "a kept result is told although the thing is gone",
        "Operations",
        "client/operations.py",
        (("self._left(), self.seen)\n", "self._left(), 0 * self.seen)\n"),),
        test="tests/clients/test_kept_results.py"
        "::test_if_it_is_gone_it_is_done_again_whatever_is_kept[sync-memory]",
    ),
)
