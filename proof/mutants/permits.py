"""Flaws in PostgreSQL's functions for semaphores, each with the one test that must fail."""

from __future__ import annotations

from proof.mutants.databases import CALLING, POSTGRES, POSTGRES_DIALECT, POSTGRES_ROWS
from proof.mutants.mutant import Mutant

FUNCTIONS = "stores/postgres/schema/003_permits.sql"
COMPARING = "tests/conformance/test_postgres_hand_over.py::test_{}"
JOINING = COMPARING.format("joining_a_semaphore_does_what_the_rules_do[{}]")
PASSING = COMPARING.format("releasing_a_permit_does_what_the_rules_do[{}-options0]")

PERMITS_MUTANTS = (
    Mutant(
        "postgres: who joins a semaphore fast does not see that a permit is free",
        "Terms, P8",
        FUNCTIONS,
        (
            (
                'l.notes = the_notes AND l.notes = \'{"mode":"permits","permits":\' || l.holds || \'}\'',
                "l.notes = the_notes",
            ),
        ),
        JOINING.format("two have left-one"),
    ),
    Mutant(
        "postgres: who joins a semaphore fast does not see that a lease is over",
        "Terms, P8",
        FUNCTIONS,
        ((" AND alike AND until_at > at\n", " AND alike\n"),),
        JOINING.format("the first has expired-one"),
    ),
    Mutant(
        "postgres: who joins a semaphore fast passes by a dead head",
        "Queue and hand-over",
        FUNCTIONS,
        (("ORDER BY t.number LIMIT 1) > at, true)", "ORDER BY t.number LIMIT 1) > 0, true)"),),
        JOINING.format("the head is dead-one"),
    ),
    Mutant(
        "postgres: a late copy of a request that was withdrawn joins a semaphore fast",
        "Queue and hand-over, P6",
        FUNCTIONS,
        (("AND e.attempt = an_attempt AND e.until_at > at)", "AND e.attempt = an_attempt AND false)"),),
        JOINING.format("withdrawn-one"),
    ),
    Mutant(
        "postgres: who joins a semaphore fast is not looked at for circles",
        "Deadlocks",
        FUNCTIONS,
        (("AS l WHERE l.owner = an_owner AND coalesce(", "AS l WHERE l.owner = a_host AND coalesce("),),
        JOINING.format("wanted by all-one"),
    ),
    Mutant(
        "postgres: who joins a semaphore does not wait for the row",
        "7",
        FUNCTIONS,
        (("lock_key = a_key FOR NO KEY UPDATE;\n    at := ", "false;\n    at := "),),
        CALLING.format("who_joins_sees_what_it_has_waited_for[join_full]"),
    ),
    Mutant(
        "postgres: a permit is passed on while one that was held for two is counted as one",
        "Terms, P2",
        FUNCTIONS,
        (("bool_and(h.terms IS NOT DISTINCT FROM theirs AND h.expires_at", "bool_and(h.expires_at"),),
        PASSING.format("as many as holds-a-2"),
    ),
    Mutant(
        "postgres: a permit is passed on although another one has expired",
        "Terms, P8",
        FUNCTIONS,
        (("FROM theirs AND h.expires_at > at)", "FROM theirs)"),),
        PASSING.format("the last has expired-a-1"),
    ),
    Mutant(
        "postgres: a permit is passed on by who does not have it",
        "P5",
        FUNCTIONS,
        (("bool_or(h.attempt = an_attempt AND h.token = a_token)", "bool_or(h.attempt = an_attempt)"),),
        COMPARING.format("releasing_a_permit_does_what_the_rules_do[full-a-1-options2]"),
    ),
    Mutant(
        "postgres: a permit is passed on to one who needs two",
        "Terms, P2",
        FUNCTIONS,
        (("one.terms IS DISTINCT FROM theirs OR ", ""),),
        PASSING.format("the head wants two-a-1"),
    ),
    Mutant(
        "postgres: a permit is passed on to a dead ticket",
        "Terms, P8",
        FUNCTIONS,
        ((" OR one.expires_at <= at\n", "\n"),),
        PASSING.format("the head is dead-a-1"),
    ),
    Mutant(
        "postgres: an attempt whose permit was passed on is forgotten at once",
        "Terms, P6",
        FUNCTIONS,
        (("'released', at + a_memory)", "'released', at)"),),
        PASSING.format("full-a-1"),
    ),
    Mutant(
        "postgres: a permit that was passed on counts as claimed",
        "Queue and hand-over",
        FUNCTIONS,
        (("token = its_token, claimed = 0,", "token = its_token, claimed = 1,"),),
        PASSING.format("full-a-1"),
    ),
    Mutant(
        "postgres: a permit is passed on whoever has pinned the key",
        "12, P4",
        FUNCTIONS,
        (("       FOR UPDATE SKIP LOCKED;\n", "       FOR NO KEY UPDATE;\n"),),
        COMPARING.format(
            "a_permit_that_is_left_while_a_transaction_pins_the_key_is_passed_on_to_nobody[by the function]"
        ),
    ),
    Mutant(
        "postgres: passing a permit on need not reach the disk",
        "14, P2",
        FUNCTIONS,
        (
            (
                "AND t.number = one.number;\n",
                "AND t.number = one.number;\n    PERFORM set_config('synchronous_commit', 'off', true);\n",
            ),
        ),
        POSTGRES_ROWS.format("a_grant_is_on_the_disk_when_it_is_answered_and_a_release_need_not_be"),
    ),
    Mutant(
        "postgres: the token of a permit is told before the standby has confirmed it",
        "18, P2",
        POSTGRES,
        (
            (
                "SELECT instance, CASE WHEN :unwatched THEN concat_ws(",
                "SELECT instance, CASE WHEN true THEN concat_ws(",
            ),
        ),
        CALLING.format("with_standbys_that_have_to_confirm_no_token_is_told_to_others[fast]"),
    ),
    Mutant(
        "postgres: somebody else's permit is told",
        "Entering by the hand-over",
        POSTGRES,
        (("WHERE h.granted_at = e.at AND h.claimed = 0)", "WHERE h.claimed = 0)"),),
        PASSING.format("won by another before-a-2"),
    ),
    Mutant(
        "postgres: who is head after a permit was passed on is not told",
        "Terms, P8",
        POSTGRES,
        ((" WHERE 10 * (f.ends - won.granted_at) < 9 * t.claim)", " WHERE f.ends < t.claim)"),),
        PASSING.format("the second is elsewhere-a-1"),
    ),
    Mutant(
        "postgres: everybody may call the functions for semaphores",
        "store rules",
        FUNCTIONS,
        (
            (
                "(text, text, bigint, bigint, bigint) FROM PUBLIC",
                "(text, text, bigint, bigint, bigint) FROM CURRENT_USER",
            ),
        ),
        CALLING.format("only_who_was_granted_the_functions_may_call_them"),
    ),
    Mutant(
        "postgres: without the functions for semaphores there are none for plain locks",
        "store rules",
        POSTGRES_DIALECT,
        (("self._without.add(kind)", "self._without.update((PLAIN, PERMITS))"),),
        CALLING.format("older_tables_do_without_and_are_upgraded_with_all_that_is_in_them[2]"),
    ),
)
