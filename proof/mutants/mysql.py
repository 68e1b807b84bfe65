"""Flaws in what MariaDB does with permits in one block: joining a semaphore's queue, and passing one on."""

from __future__ import annotations

from proof.mutants.mutant import Mutant

MYSQL = "stores/mysql/statements.sql"
SIGNALS = "stores/mysql/signals.py"

PERMITS = "tests/conformance/test_mysql_permits.py::test_{}"
JOINING = PERMITS.format("joining_a_semaphore_does_what_the_rules_do[{}]")
PASSING = PERMITS.format("releasing_a_permit_does_what_the_rules_do[{}-options0]")

HEAD = "claim, terms <=> @holdfast_notes AND expires_at > @holdfast_now\n"
SINGLE = "min(terms <=> @holdfast_notes AND expires_at > @holdfast_now)"

MYSQL_MUTANTS_ON_SERVERS = (
    Mutant(
        "mysql: who joins a semaphore fast does not see that a permit is free",
        "Terms, P8",
        MYSQL,
        (("notes = :notes AND notes = :full_notes AND NOT", "notes = :notes AND NOT"),),
        JOINING.format("two have left-one"),
    ),
    Mutant(
        "mysql: who joins a semaphore fast does not see that a lease is over",
        "Terms, P8",
        MYSQL,
        (("@holdfast_now, 1) AND @holdfast_end > @holdfast_now\n", "@holdfast_now, 1)\n"),),
        JOINING.format("the first has expired-one"),
    ),
    Mutant(
        "mysql: who joins a semaphore fast passes by a dead head",
        "Queue and hand-over",
        MYSQL,
        (("IF(@holdfast_single AND coalesce(@holdfast_head > @holdfast_now, 1)", "IF(@holdfast_single"),),
        JOINING.format("the head is dead-one"),
    ),
    Mutant(
        "mysql: a late copy of a request that was withdrawn joins a semaphore",
        "Queue and hand-over, P6",
        MYSQL,
        (("AND @holdfast_ended IS NULL, @holdfast_ticket, NULL)", ", @holdfast_ticket, NULL)"),),
        JOINING.format("withdrawn-one"),
    ),
    Mutant(
        "mysql: a permit is passed on while one that was held for two is counted as one",
        "Terms, P2",
        MYSQL,
        ((SINGLE, "min(expires_at > @holdfast_now)"),),
        PASSING.format("as many as holds-a-2"),
    ),
    Mutant(
        "mysql: a permit is passed on and a lease that is over stays",
        "Terms, P8",
        MYSQL,
        ((SINGLE, "min(terms <=> @holdfast_notes)"),),
        PASSING.format("the first has expired-a-2"),
    ),
    Mutant(
        "mysql: a permit is passed on to one who needs two",
        "Terms, P2",
        MYSQL,
        ((HEAD, "claim, expires_at > @holdfast_now\n"),),
        PASSING.format("the head wants two-a-1"),
    ),
    Mutant(
        "mysql: a permit is passed on to a dead ticket",
        "Terms, P8",
        MYSQL,
        ((HEAD, "claim, terms <=> @holdfast_notes\n"),),
        PASSING.format("the head is dead-a-1"),
    ),
    Mutant(
        "mysql: an attempt whose permit was passed on is not remembered as ended",
        "Terms, P6",
        MYSQL,
        (("'released', @holdfast_now + 60000000 FROM DUAL", "'released', 0 FROM DUAL"),),
        PASSING.format("full-a-1"),
    ),
    Mutant(
        "mysql: a permit is passed on by whoever says so",
        "P5",
        MYSQL,
        (("max(attempt = :attempt AND token = :token),", "max(attempt = :attempt),"),),
        PERMITS.format("a_permit_is_passed_on_by_its_token_alone"),
    ),
    Mutant(
        "mysql: a lock's row names who has just released a permit",
        "Terms",
        MYSQL,
        (("min(IF(attempt = :attempt, NULL, token)), min(", "min(token), min("),),
        PASSING.format("two wait-a-1"),
    ),
    Mutant(
        "mysql: a permit that is fenced is passed on",
        "Terms, P4",
        MYSQL,
        (("IF(@holdfast_free AND @holdfast_single", "IF(@holdfast_single"),),
        PERMITS.format("who_fences_the_row_is_left_to_the_rules"),
    ),
    Mutant(
        "mysql: what a connection has handed over before is taken for the token of a semaphore",
        "Terms, P2",
        MYSQL,
        (("    @holdfast_token = NULL, @holdfast_next = NULL,", "    @holdfast_next = NULL,"),),
        PERMITS.format("a_lease_that_was_entered_twice_is_no_permit"),
    ),
    Mutant(
        "mysql: the next head of a semaphore is not woken if the winner is ours",
        "Queue and hand-over, P8",
        MYSQL,
        (("KILL QUERY coalesce(@holdfast_line, @holdfast_next_line);", "KILL QUERY @holdfast_line;"),),
        PERMITS.format("a_head_elsewhere_is_told_although_the_winner_is_ours[blocks]"),
    ),
    Mutant(
        "mysql: a permit is entered by what only a row shows",
        "Entering by the hand-over, P1",
        MYSQL,
        (("\n                    IS NOT NULL, at, 0))", "\n                    IS NULL, at, 0))"),),
        PERMITS.format("a_permit_whose_hand_over_only_a_row_shows_has_to_be_claimed[False]"),
    ),
    Mutant(
        "mysql: the winner of a permit elsewhere is told no token",
        "Entering by the hand-over",
        SIGNALS,
        (("expires_in / 1e6, to, entry, entry / 1e6)", "expires_in / 1e6, to)"),),
        PERMITS.format("a_winner_elsewhere_and_the_next_head_are_told[blocks-a client]"),
    ),
)
