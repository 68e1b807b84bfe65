"""Flaws in entering by the hand-over: in what is trusted, who is told, what is remembered. See `mutant`."""

from __future__ import annotations

from proof.mutants.mutant import (
    DECIDING,
    FAMILY,
    KEEPER,
    MEMORY_SUITE,
    PLANS,
    RENEWING,
    SETTLING,
    SQL,
    SQL_SETTLING,
    SQLITE_SUITE,
    Mutant,
)

ENGINE = "client/engine.py"
SYNC_ENGINE = "client/sync/engine.py"
SIGNALS = "stores/signals.py"
TRANSACTOR = "stores/sql/transactions/transactor.py"
POSTGRES = "stores/postgres/statements.sql"
MYSQL = "stores/mysql/statements.sql"

ENTERING = "Entering by the hand-over"

PLAN_TESTS = "tests/unit/test_plans_acquire.py::test_{}"
KEEPER_TESTS = "tests/unit/test_keeper.py::test_{}"
CLIENT_TESTS = "tests/clients/test_entering.py::test_{}"
POSTGRES_SUITE = "tests/conformance/test_postgres.py::TestPostgres"
MYSQL_SUITE = "tests/conformance/test_mysql.py::TestMySQL"

_COUNTS = "        return not (self.operation or self.delay or self.at_least)\n"
_ENDS = "if hold.claimed or hold.terms.enters:"
_ANCHOR = "min(0.0, signal.at - ticket.answered_at)"

ENTERING_MUTANTS = (
    # What is trusted.
    Mutant(
        "a hand-over is trusted from when its signal came",
        f"{ENTERING}, P3",
        PLANS,
        (("trusted_until = handed.since + handed.lasts", "trusted_until = clock() + handed.lasts"),),
        PLAN_TESTS.format("trust_in_a_hand_over_counts_from_its_anchor"),
    ),
    Mutant(
        "a plan enters by a hand-over to an attempt of its that has ended",
        "Entering by the hand-over, P2",
        PLANS,
        (
            (
                "            return signal if signal.attempt == request.attempt else None",
                "            return signal",
            ),
        ),
        PLAN_TESTS.format("a_hand_over_to_an_attempt_that_has_ended_is_not_entered"),
    ),
    Mutant(
        "the signal of a hand-over is trusted from when it came, and the simulation sees it",
        f"{ENTERING}, P3",
        PLANS,
        (("trusted_until = handed.since + handed.lasts", "trusted_until = clock() + handed.lasts"),),
        seed=0,
    ),
    Mutant(
        "an answer that says no time is an anchor",
        f"{ENTERING}, P3",
        KEEPER,
        (("if answered_at and asked > self.asked:", "if asked > self.asked:"),),
        KEEPER_TESTS.format("an_answer_that_says_no_time_or_no_ticket_is_no_anchor"),
    ),
    Mutant(
        "an answer that found no ticket is an anchor",
        f"{ENTERING}, P3",
        KEEPER,
        (
            (
                'if told.outcome == "waiting":\n                ticket.anchor',
                "if True:\n                ticket.anchor",
            ),
        ),
        KEEPER_TESTS.format("an_answer_that_says_no_time_or_no_ticket_is_no_anchor"),
    ),
    Mutant(
        "an anchor moves back",
        f"{ENTERING}, P3",
        KEEPER,
        (("if answered_at and asked > self.asked:", "if answered_at:"),),
        KEEPER_TESTS.format("an_anchor_does_not_move_back"),
    ),
    Mutant(
        "a grant that is younger than the anchor is trusted for longer",
        f"{ENTERING}, P3",
        KEEPER,
        ((_ANCHOR, "signal.at - ticket.answered_at"),),
        KEEPER_TESTS.format("a_hand_over_is_trusted_from_when_we_asked_and_were_still_queued"),
    ),
    Mutant(
        "the difference to a grant that is older than the anchor is not taken off",
        f"{ENTERING}, P3",
        KEEPER,
        ((_ANCHOR, "0.0"),),
        KEEPER_TESTS.format("an_anchor_that_is_younger_than_the_grant_costs_the_difference"),
    ),
    Mutant(
        "too little is left of a hand-over, and it is entered",
        ENTERING,
        PLANS,
        (("if trusted_until - clock() >= handed.lasts / 2:", "if trusted_until > clock():"),),
        PLAN_TESTS.format("too_little_that_is_left_of_a_hand_over_is_claimed[1.6]"),
    ),
    Mutant(
        "a hand-over is entered when its trust is over",
        f"{ENTERING}, P3",
        PLANS,
        (("if trusted_until - clock() >= handed.lasts / 2:", "if trusted_until:"),),
        PLAN_TESTS.format("too_little_that_is_left_of_a_hand_over_is_claimed[60.0]"),
    ),
    # Who enters.
    Mutant(
        "a lease that is shorter than the claim window is entered",
        ENTERING,
        PLANS,
        (("and enters and request.ttl >= handed.lasts:", "and enters:"),),
        PLAN_TESTS.format("a_lease_that_is_shorter_than_the_claim_window_is_claimed"),
    ),
    Mutant(
        "a plan whose lease is not renewed enters",
        ENTERING,
        PLANS,
        (("if handed is not None and enters and", "if handed is not None and"),),
        PLAN_TESTS.format("a_lease_that_is_not_renewed_is_claimed"),
    ),
    Mutant(
        "a client whose lease is not renewed enters",
        ENTERING,
        ENGINE,
        (("            enters=wish.renew and self.settings.enters,\n", "            enters=True,\n"),),
        CLIENT_TESTS.format(
            "who_could_not_claim_it_in_the_background_claims_at_once[sync-memory-not renewed]"
        ),
    ),
    Mutant(
        "a client does not say when it was queued",
        ENTERING,
        ENGINE,
        (("running.asked_at, answer.at)", "running.asked_at, 0.0)"),),
        CLIENT_TESTS.format("a_winner_enters_without_a_second_request[sync-memory]"),
    ),
    Mutant(
        "a child enters what its parent has won",
        f"{ENTERING}, Forks",
        ENGINE,
        (
            (
                "if self.client is not running.client:\n            self._raise_forked()\n        return",
                "return",
            ),
        ),
        CLIENT_TESTS.format("what_a_parent_has_won_its_child_does_not_enter[memory]"),
    ),
    Mutant(
        "the winner of an operation is told a token",
        ENTERING,
        FAMILY,
        ((_COUNTS, "        return not (self.delay or self.at_least)\n"),),
        f"{MEMORY_SUITE}::test_terms_that_count_who_began_tell_no_token",
    ),
    Mutant(
        "the winner of a lock with a delay is told a token",
        ENTERING,
        FAMILY,
        ((_COUNTS, "        return not (self.operation or self.at_least)\n"),),
        f"{MEMORY_SUITE}::test_terms_that_count_who_began_tell_no_token",
    ),
    Mutant(
        "the winner of a lock that stays taken is told a token",
        ENTERING,
        FAMILY,
        ((_COUNTS, "        return not (self.operation or self.delay)\n"),),
        f"{MEMORY_SUITE}::test_terms_that_count_who_began_tell_no_token",
    ),
    Mutant(
        "the text of a signal says another instant",
        f"{ENTERING}, P3",
        SIGNALS,
        (("{signal.token} {micros(signal.at)}", "{signal.token} {micros(signal.at) + 5_000_000}"),),
        f"{SQLITE_SUITE}::test_a_winner_elsewhere_is_told_the_same",
    ),
    # What the store makes of it.
    Mutant(
        "memory: a winner whose hand-over has expired comes back",
        f"{ENTERING}, 8th invariant",
        SETTLING,
        ((_ENDS, "if hold.claimed:"),),
        f"{MEMORY_SUITE}::test_one_that_could_be_entered_and_expires_is_over",
    ),
    Mutant(
        "rules: a winner whose hand-over has expired comes back",
        f"{ENTERING}, 8th invariant",
        SQL_SETTLING,
        ((_ENDS, "if hold.claimed:"),),
        f"{SQLITE_SUITE}::test_one_that_could_be_entered_and_expires_is_over",
    ),
    Mutant(
        "memory: a renewal does not claim",
        ENTERING,
        RENEWING,
        (
            (
                "            hold.end, hold.claimed = end, True\n            return r.LeaseAnswer",
                "            hold.end = end\n            return r.LeaseAnswer",
            ),
        ),
        f"{MEMORY_SUITE}::test_the_first_renewal_lasts_the_full_ttl",
    ),
    Mutant(
        "rules: a renewal does not claim",
        ENTERING,
        DECIDING,
        (("lock.put_hold(replace(hold, end=end, claimed=True))", "lock.put_hold(replace(hold, end=end))"),),
        f"{SQLITE_SUITE}::test_the_first_renewal_lasts_the_full_ttl",
    ),
    Mutant(
        "sqlite: a renewal does not claim",
        ENTERING,
        SQL,
        (
            (
                "UPDATE holdfast_locks SET expires_at = :end, claimed = 1\n WHERE lock_key = :key AND",
                "UPDATE holdfast_locks SET expires_at = :end\n WHERE lock_key = :key AND",
            ),
        ),
        f"{SQLITE_SUITE}::test_the_first_renewal_lasts_the_full_ttl",
    ),
    # Keeping it.
    Mutant(
        "what was entered is claimed when its ttl says so",
        f"{ENTERING}, Renewing",
        KEEPER,
        (("self._schedule(kept, lasts, asked)", "self._schedule(kept, grant.ttl, asked)"),),
        KEEPER_TESTS.format("what_was_entered_is_claimed_for_its_full_ttl_by_the_next_renewal"),
    ),
    Mutant(
        "a loss that overtakes the signal of the hand-over is forgotten",
        f"{ENTERING}, Renewing",
        KEEPER,
        (
            (
                "        kept.hurried_at = self.hurried_at\n",
                "        kept.hurried_at = -math.inf if grant.lasts else self.hurried_at\n",
            ),
        ),
        KEEPER_TESTS.format("a_loss_that_overtakes_the_hand_over_is_asked_about_at_once"),
    ),
)

ENTERING_MUTANTS_ON_SERVERS = (
    Mutant(
        "postgres: a renewal does not claim",
        ENTERING,
        POSTGRES,
        (("SET expires_at = :clock + due.ttl, claimed = 1", "SET expires_at = :clock + due.ttl"),),
        f"{POSTGRES_SUITE}::test_the_first_renewal_lasts_the_full_ttl",
    ),
    Mutant(
        "mysql: a renewal does not claim",
        ENTERING,
        MYSQL,
        (
            (
                "SET l.expires_at = @holdfast_now + a.ttl, l.claimed = 1",
                "SET l.expires_at = @holdfast_now + a.ttl",
            ),
        ),
        f"{MYSQL_SUITE}::test_the_first_renewal_lasts_the_full_ttl",
    ),
    Mutant(
        "servers: a hand-over that tells a token need not reach the disk",
        f"{ENTERING}, 14, P2",
        TRANSACTOR,
        (
            (
                "lazily = deal.lazily and not any(signal.token for _, signal in deal.signals)",
                "lazily = deal.lazily",
            ),
        ),
        "tests/mutants/test_rules.py::test_a_hand_over_by_the_rules_is_on_the_disk_when_its_winner_is_told",
    ),
)
