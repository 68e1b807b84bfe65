"""Flaws in the stores of database servers, and in what fences them: each with the one test that must fail.

Here the whole suite would take minutes for each, so each names its test; a test that is gone fails the run.
"""

from __future__ import annotations

from proof.mutants.mutant import Mutant

POSTGRES = "stores/postgres/statements.sql"
POSTGRES_SCHEMA = "stores/postgres/schema/001_locks.sql"
POSTGRES_FUNCTIONS = "stores/postgres/schema/002_functions.sql"
POSTGRES_SESSION = "stores/postgres/session.py"
POSTGRES_SIGNALS = "stores/postgres/signals.py"
POSTGRES_DIALECT = "stores/postgres/dialect.py"
MYSQL = "stores/mysql/statements.sql"
SHARED = "stores/sql/statements.sql"
MYSQL_SCHEMA = "stores/mysql/schema/001_locks.sql"
MYSQL_SESSION = "stores/mysql/session.py"
KEYS = "stores/sql/transactions/keys.py"
TRANSACTOR = "stores/sql/transactions/transactor.py"
SESSIONS = "stores/sql/transactions/sessions.py"
MANY = "stores/sql/transactions/batches.py"
SESSION = "stores/sql/transactions/session.py"
WITHIN = "stores/sql/callers/within.py"
REHEARSING = "stores/sql/callers/rehearsal.py"

POSTGRES_PINNING = "stores/postgres/variables.py"
MYSQL_PINNING = "stores/mysql/variables.py"
HOSTILE = "tests/conformance/test_hostile_servers.py::test_{}"
ON_POSTGRES = "tests/conformance/test_postgres.py::TestPostgres::test_{}"
POSTGRES_ROWS = "tests/conformance/test_postgres_rows.py::test_{}"
CALLING = "tests/conformance/test_postgres_functions.py::test_{}"
LISTENING = "tests/conformance/test_postgres_listening.py::test_{}"
ON_MYSQL = "tests/conformance/test_mysql.py::TestMySQL::test_{}"
MYSQL_ROWS = "tests/conformance/test_mysql_rows.py::test_{}"
MYSQL_BLOCKS = "tests/conformance/test_mysql_blocks.py::test_{}"
MYSQL_SIGNALS = "tests/conformance/test_mysql_signals.py::test_{}"
FENCING = "tests/clients/test_fencing.py::test_{}"
CALLERS = "tests/clients/test_callers.py::test_{}"
ADDRESSES = "tests/clients/test_addresses.py::test_{}"
CANCELLING_WITHIN = "tests/clients/test_cancelling_within.py::test_{}"
THEIRS = "tests/conformance/test_their_transactions.py::test_{}"
MYSQL_CALLING = "stores/mysql/callers.py"
STANDBY = "tests/faults/test_failover.py::test_a_cancelled_wait_for_the_standby_is_not_a_yes[{}]"

PG_BEGAN = "coalesce(:now, (extract(epoch FROM now()) * 1000000)::bigint)"  # of the transaction
LAZY = "set_config('synchronous_commit', 'off', true) IS NOT NULL"

DATABASE_MUTANTS = (
    # Taking a lock.
    Mutant(
        "postgres: the clock stands still while a row is waited for",
        "2",
        POSTGRES,
        (
            (
                "       expires_at = :clock + :ttl,\n       owner = :owner",
                (f"       expires_at = {PG_BEGAN} + :ttl,\n       owner = :owner"),
            ),
        ),
        POSTGRES_ROWS.format("a_lease_that_was_waited_for_is_born_with_its_whole_ttl[fast]"),
    ),
    Mutant(
        "mysql: the clock stands still while a row is waited for",
        "2",
        MYSQL,
        (
            (
                "       l.expires_at = :clock + :ttl,\n",
                "       l.expires_at = :began + :ttl,\n",
            ),
        ),
        MYSQL_ROWS.format("the_clock_is_read_after_the_wait"),
    ),
    Mutant(
        "postgres: the fast path takes expired rows",
        "store rules",
        POSTGRES,
        (
            ("AND (owner IS NOT NULL OR waiters > 0 OR", "AND (expires_at > t.now OR waiters > 0 OR"),
            (
                " WHERE l.owner IS NULL AND l.waiters = 0 AND l.last_attempt",
                " WHERE (l.owner IS NULL OR l.expires_at <= :clock) AND l.waiters = 0 AND l.last_attempt",
            ),
        ),
        ON_POSTGRES.format("an_attempt_that_was_taken_over_stays_ended"),
    ),
    Mutant(
        "mysql: the fast path takes expired rows",
        "store rules",
        MYSQL,
        (
            (
                "l.owner IS NULL AND l.waiters = 0 AND l.token > 0 AND NOT",
                "(l.owner IS NULL OR l.expires_at <= :clock) AND l.waiters = 0 AND l.token > 0 AND NOT",
            ),
        ),
        ON_MYSQL.format("an_attempt_that_was_taken_over_stays_ended"),
    ),
    Mutant(
        "postgres: what was read before the wait is believed",
        "7, P6",
        POSTGRES,
        (("\n   AND l.xmin = (SELECT s.xmin FROM holdfast_locks AS s WHERE s.lock_key = :key)", ""),),
        POSTGRES_ROWS.format("an_attempt_that_ends_while_it_waits_for_the_row_is_not_granted"),
    ),
    Mutant(
        "mysql: what was read before the wait is believed",
        "7, P6",
        MYSQL,
        (
            (
                "e.lock_key = l.lock_key AND e.attempt = :attempt AND l.token > 0\n",
                "e.lock_key = :key AND e.attempt = :attempt\n",
            ),
        ),
        MYSQL_ROWS.format("an_attempt_that_ends_while_it_waits_for_the_row_is_not_granted"),
    ),
    Mutant(
        "mysql: an upsert takes a held lock",
        "3",
        MYSQL,
        (
            ("   AND NOT EXISTS (SELECT 1 FROM holdfast_locks WHERE lock_key = :key)\n", ""),
            (
                "                      AND until_at > :clock);\n\n-- name: claim",
                (
                    "                      AND until_at > :clock)\n"
                    "    ON DUPLICATE KEY UPDATE owner = :owner, attempt = :attempt;\n\n-- name: claim"
                ),
            ),
        ),
        ON_MYSQL.format("clients_share_locks"),
    ),
    Mutant(
        "postgres: the token is the time, however late the last one was",
        "10, P1",
        POSTGRES,
        (
            (
                "SET token      = greatest(l.token + 1, (SELECT token_floor + 1 FROM",
                "SET token      = greatest(l.granted_at, (SELECT token_floor + 1 FROM",
            ),
        ),
        ON_POSTGRES.format("tokens_rise_from_lease_to_lease"),
    ),
    Mutant(
        "mysql: the token is the last one and one, whatever the time",
        "10, P1",
        MYSQL,
        (("LAST_INSERT_ID(greatest(l.token + 1, :clock)),", "LAST_INSERT_ID(l.token + 1),"),),
        "tests/conformance/test_mysql_comparison.py::test_mysql_answers_as_memory_does[0-notable]",
    ),
    Mutant(
        "mysql: a new row does not know the floor",
        "10, Sweep",
        MYSQL,
        (("LAST_INSERT_ID(greatest(m.token_floor + 1, :clock)),", "LAST_INSERT_ID(:clock),"),),
        ON_MYSQL.format("the_floor_holds_for_other_clients_too"),
    ),
    Mutant(
        "postgres: tokens restart with the row",
        "10, P1",
        POSTGRES,
        (
            (
                ":key::text, greatest((SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1), t.now),",
                ":key::text, 1,",
            ),
        ),
        ON_POSTGRES.format("tokens_rise_through_a_sweep"),
    ),
    Mutant(
        "servers: sweeping does not raise the floor",
        "10, Sweep",
        MANY,
        (('        fetch("raise_floor", token=max(token for _, token in idle))\n', ""),),
        ON_MYSQL.format("tokens_rise_through_a_sweep_even_if_time_went_back"),
    ),
    Mutant(
        "postgres: a grant need not reach the disk",
        "14, P2",
        POSTGRES,
        (
            (
                "WHERE s.lock_key = :key)\nRETURNING l.token;",
                f"WHERE s.lock_key = :key)\n   AND {LAZY}\nRETURNING l.token;",
            ),
        ),
        POSTGRES_ROWS.format("a_grant_is_on_the_disk_when_it_is_answered_and_a_release_need_not_be"),
    ),
    Mutant(
        "servers: a grant by the slow path need not reach the disk",
        "14, P2",
        KEYS,
        (("lazily=_is_queued", "lazily=lambda answer: True"),),
        POSTGRES_ROWS.format("a_grant_is_on_the_disk_when_it_is_answered_and_a_release_need_not_be"),
    ),
    Mutant(
        "servers: the outcome of an operation need not reach the disk",
        "14",
        KEYS,
        (
            (
                "request.outcome is None and not (isinstance(answer, r.Released) and answer.told)",
                "True or answer",
            ),
        ),
        POSTGRES_ROWS.format("a_grant_is_on_the_disk_when_it_is_answered_and_a_release_need_not_be"),
    ),
    # Giving it back, and keeping it.
    Mutant(
        "postgres: the fast release looks for waiters in their table",
        "7",
        POSTGRES,
        (
            (
                "   AND waiters = 0\n   AND expires_at >",
                "   AND NOT EXISTS (SELECT FROM holdfast_tickets WHERE lock_key = :key)\n   AND expires_at >",
            ),
        ),
        POSTGRES_ROWS.format("a_release_does_not_pass_a_waiter_that_is_just_joining[fast]"),
    ),
    Mutant(
        "mysql: the fast release does not look for waiters",
        "7",
        MYSQL,
        (("   AND waiters = 0\n   AND expires_at >", "   AND expires_at >"),),
        ON_MYSQL.format("a_client_that_is_gone_keeps_nobody_from_handing_over"),
    ),
    Mutant(
        "postgres: release by key alone",
        "8, P5",
        POSTGRES,
        (
            (
                " WHERE lock_key = :key AND attempt = :attempt AND token = :token\n   AND waiters = 0",
                " WHERE lock_key = :key AND attempt IS NOT NULL\n   AND waiters = 0",
            ),
        ),
        ON_POSTGRES.format("another_attempt_releases_nothing"),
    ),
    Mutant(
        "mysql: release by attempt, whatever the token",
        "8, P5",
        MYSQL,
        (
            (
                " WHERE lock_key = :key AND attempt = :attempt AND token = :token\n   AND waiters = 0",
                " WHERE lock_key = :key AND attempt = :attempt\n   AND waiters = 0",
            ),
        ),
        ON_MYSQL.format("another_token_releases_nothing"),
    ),
    Mutant(
        "mysql: assignments in the wrong order",
        "1",
        MYSQL,
        (
            (
                "SET last_attempt = attempt, owner = NULL, attempt = NULL,",
                "SET owner = NULL, attempt = NULL, last_attempt = attempt,",
            ),
        ),
        ON_MYSQL.format("a_late_copy_of_the_acquire_finds_the_key_remembering_who_released_last"),
    ),
    Mutant(
        "postgres: renewal by key alone",
        "9, P5",
        POSTGRES,
        (
            (
                '     WHERE l.attempt = a.attempt COLLATE "C" AND l.token = a.token\n',
                "     WHERE l.attempt IS NOT NULL\n",
            ),
        ),
        ON_POSTGRES.format("a_lease_that_was_taken_over_is_lost_and_its_successor_untouched"),
    ),
    Mutant(
        "mysql: renewal by key alone",
        "9, P5",
        MYSQL,
        (
            (
                " WHERE l.attempt = CAST(a.attempt AS BINARY) AND l.token = a.token\n",
                " WHERE l.attempt IS NOT NULL\n",
            ),
        ),
        ON_MYSQL.format("a_lease_that_was_taken_over_is_lost_and_its_successor_untouched"),
    ),
    Mutant(
        "postgres: renewal revives an expired lease",
        "R3",
        POSTGRES,
        (
            ("       AND l.expires_at > :clock\n       AND l.expires_at <=", "       AND l.expires_at <="),
            ("   AND l.expires_at > :clock\nRETURNING due.place", "RETURNING due.place"),
        ),
        ON_POSTGRES.format("an_expired_lease_cannot_be_renewed"),
    ),
    Mutant(
        "mysql: renewal revives an expired lease",
        "R3",
        MYSQL,
        (("   AND l.expires_at > @holdfast_now AND l.expires_at <=", "   AND l.expires_at <="),),
        ON_MYSQL.format("an_expired_lease_cannot_be_renewed"),
    ),
    Mutant(
        "mysql: rows that were found are taken for renewed",
        "3, R3",
        MYSQL,
        (
            (
                " WHERE find_in_set(a.place, @holdfast_due) AND l.expires_at = @holdfast_now + a.ttl AND",
                " WHERE find_in_set(a.place, @holdfast_due) OR",
            ),
        ),
        ON_MYSQL.format("an_expired_lease_cannot_be_renewed"),
    ),
    Mutant(
        "postgres: a batch of renewals waits for every row",
        "12",
        POSTGRES,
        (("FOR NO KEY UPDATE OF l SKIP LOCKED)", "FOR NO KEY UPDATE OF l)"),),
        POSTGRES_ROWS.format("a_batch_of_renewals_waits_for_no_row"),
    ),
    Mutant(
        "mysql: a batch of renewals waits for every row",
        "12",
        MYSQL,
        (("l.token = a.token\n   FOR UPDATE SKIP LOCKED;", "l.token = a.token\n   FOR UPDATE;"),),
        MYSQL_ROWS.format("a_batch_of_renewals_does_not_wait_for_a_row_that_is_locked"),
    ),
    # The queue.
    Mutant(
        "postgres: a hand-over leaves the ticket",
        "Queue and hand-over",
        POSTGRES_FUNCTIONS,
        (("AND t.number = one.number;", "AND t.number < one.number;"),),
        ON_POSTGRES.format("the_queue_is_served_in_order_to_its_end"),
    ),
    Mutant(
        "postgres: a hand-over does not count waiters down",
        "9th invariant",
        POSTGRES_FUNCTIONS,
        (("waiters = l.waiters - 1\n", "waiters = l.waiters\n"),),
        ON_POSTGRES.format("a_release_hands_over_to_the_head"),
    ),
    Mutant(
        "mysql: a hand-over leaves the ticket",
        "Queue and hand-over",
        MYSQL,
        (("number = @holdfast_number;", "number < @holdfast_number;"),),
        ON_MYSQL.format("the_queue_is_served_in_order_to_its_end"),
    ),
    Mutant(
        "mysql: a hand-over does not count waiters down",
        "9th invariant",
        MYSQL,
        ((", waiters = waiters - 1\n", "\n"),),
        ON_MYSQL.format("a_release_hands_over_to_the_head"),
    ),
    Mutant(
        "postgres: the last in the queue is first",
        "P7, 22",
        POSTGRES_FUNCTIONS,
        (("ORDER BY t.number LIMIT 2;", "ORDER BY t.number DESC LIMIT 2;"),),
        ON_POSTGRES.format("a_release_hands_over_to_the_head"),
    ),
    Mutant(
        "mysql: the last in the queue is first",
        "P7, 22",
        MYSQL,
        (
            (
                "WHERE lock_key = :key ORDER BY number LIMIT 1;\nSELECT expires_at > @",
                "WHERE lock_key = :key ORDER BY number DESC LIMIT 1;\nSELECT expires_at > @",
            ),
        ),
        ON_MYSQL.format("a_release_hands_over_to_the_head"),
    ),
    Mutant(
        "postgres: a hand-over wakes everybody",
        "13",
        POSTGRES,
        (
            (
                "  FROM holdfast_locks\n WHERE lock_key = :key AND claimed = 0 AND last",
                (
                    "  FROM (SELECT * FROM holdfast_locks\n"
                    " UNION ALL SELECT l.lock_key, l.token, l.owner, t.attempt, 0, l.expires_at,"
                    " l.granted_at, t.instance, l.host, l.pid, l.last_attempt, 0, 0, 0, 0, NULL"
                    " FROM holdfast_tickets AS t JOIN holdfast_locks AS l USING (lock_key)) AS l\n"
                    " WHERE lock_key = :key AND claimed = 0 AND last"
                ),
            ),
        ),
        POSTGRES_ROWS.format("one_client_is_notified_of_a_hand_over_and_nobody_of_anything_else"),
    ),
    Mutant(
        "servers: the winner is woken before the commit",
        "13, P8",
        SESSION,
        (
            ('        self.later("commit")\n        found =', "        found ="),
            (
                "self._session.signalling(instance, signal)\n",
                'self._session.signalling(instance, signal)\n        self.later("commit")\n',
            ),
        ),
        POSTGRES_ROWS.format("nobody_is_woken_before_the_commit"),
    ),
    # The family of locks.
    Mutant(
        "postgres: a hand-over forgets the terms of the winner",
        "Terms",
        POSTGRES_FUNCTIONS,
        ((" OR one.terms IS NOT NULL OR ", " OR "),),
        POSTGRES_ROWS.format("a_release_by_the_fast_path_leaves_readers_to_the_slow_one"),
    ),
    Mutant(
        "mysql: a hand-over forgets the terms of the winner",
        "Terms",
        MYSQL,
        (("AND @holdfast_terms IS NULL AND coalesce", "AND coalesce"),),
        MYSQL_SIGNALS.format("those_whose_holds_are_not_in_the_row_are_told_too_and_once"),
    ),
    Mutant(
        "postgres: who joins a queue looks for no circle",
        "Deadlocks",
        POSTGRES_FUNCTIONS,
        (
            (
                "has_any := EXISTS (SELECT FROM @.holdfast_locks AS l WHERE l.owner = an_owner AND",
                "has_any := EXISTS (SELECT FROM @.holdfast_locks AS l WHERE l.owner = a_host AND",
            ),
        ),
        CALLING.format("who_holds_something_may_close_a_circle_and_looks"),
    ),
    Mutant(
        "mysql: who joins a queue looks for a circle before the commit",
        "Deadlocks",
        MYSQL,
        (
            (
                "COMMIT;\nSELECT 1 INTO @holdfast_wanted FROM holdfast_locks",
                "SELECT 1 INTO @holdfast_wanted FROM holdfast_locks",
            ),
            (
                " WHERE h.owner = :owner AND l.waiters > 0 LIMIT 1;\nSELECT concat_ws",
                " WHERE h.owner = :owner AND l.waiters > 0 LIMIT 1;\nCOMMIT;\nSELECT concat_ws",
            ),
        ),
        MYSQL_BLOCKS.format("who_joins_a_queue_looks_for_a_circle_after_the_commit"),
    ),
    Mutant(
        "mysql: who has ended joins a queue",
        "P6",
        MYSQL,
        (
            (
                "\n                          AND @holdfast_ended IS NULL, @holdfast_number, NULL);",
                ", @holdfast_number, NULL);",
            ),
        ),
        MYSQL_BLOCKS.format("who_ends_while_it_waits_for_the_row_does_not_join"),
    ),
    Mutant(
        "mysql: who joins a queue leaves a dead head where it is",
        "Queue and hand-over",
        MYSQL,
        ((" AND coalesce(@holdfast_head > @holdfast_now, 1)\n", "\n"),),
        MYSQL_BLOCKS.format("a_dead_head_is_left_to_the_rules"),
    ),
    Mutant(
        "mysql: a hand-over is entered by what its row shows",
        "P1",
        "stores/mysql/signals.py",
        (('if is_proved == "1":', "if is_proved:"),),
        MYSQL_BLOCKS.format("a_hand_over_that_only_its_row_shows_has_to_be_claimed"),
    ),
    Mutant(
        "mysql: a block that was interrupted is called not done",
        "P6",
        MYSQL_SESSION,
        (("            if statement.begins and statement.is_block:", "            if False:"),),
        MYSQL_BLOCKS.format("what_is_interrupted_may_have_committed"),
    ),
    Mutant(
        "mysql: who is granted a lock outside of its row is not told",
        "P8",
        MYSQL_SESSION,
        (
            (
                '        name = "signal_granted" if',
                (
                    '        if signal.kind == "granted":\n'
                    '            return [("wake", {"instance": instance})]\n'
                    '        name = "signal_granted" if'
                ),
            ),
        ),
        MYSQL_SIGNALS.format("those_whose_holds_are_not_in_the_row_are_told_too_and_once"),
    ),
    Mutant(
        "mysql: who is granted a lock in its row is told twice",
        "13",
        MYSQL_SESSION,
        (('"signal_granted" if signal.kind == "granted" else "signal"', '"signal"'),),
        MYSQL_SIGNALS.format("a_grant_by_the_slow_path_is_told_once"),
    ),
    # PostgreSQL's functions, and who listens.
    Mutant(
        "postgres: a hand-over need not reach the disk",
        "14, P2",
        POSTGRES_FUNCTIONS,
        (
            (
                "AND t.number = one.number;\n",
                "AND t.number = one.number;\n    PERFORM set_config('synchronous_commit', 'off', true);\n",
            ),
        ),
        POSTGRES_ROWS.format("a_grant_is_on_the_disk_when_it_is_answered_and_a_release_need_not_be"),
    ),
    Mutant(
        "postgres: a token is told before the standby has confirmed it",
        "18, P2",
        POSTGRES,
        (("-- :unwatched = current_setting('synchronous_standby_names') = ''", "-- :unwatched = true"),),
        CALLING.format("with_standbys_that_have_to_confirm_no_token_is_told_to_others[fast]"),
    ),
    Mutant(
        "postgres: somebody else's hand-over is told",
        "Entering by the hand-over",
        POSTGRES,
        (("claimed = 0 AND last_attempt = :attempt AND", "claimed = 0 AND"),),
        CALLING.format("who_is_told_a_token_was_granted_it_by_this_very_release"),
    ),
    Mutant(
        "postgres: everybody may call the functions",
        "store rules",
        POSTGRES_FUNCTIONS,
        (("(text, text, bigint, bigint) FROM PUBLIC", "(text, text, bigint, bigint) FROM CURRENT_USER"),),
        CALLING.format("only_who_was_granted_the_functions_may_call_them"),
    ),
    Mutant(
        "postgres: the functions are needed",
        "store rules",
        POSTGRES_DIALECT,
        (("except (errors.StoreMisconfigured, errors.SchemaMismatch) as", "except errors.SettingsError as"),),
        CALLING.format("without_the_functions_the_rules_do_it[not granted]"),
    ),
    Mutant(
        "postgres: who joins does not wait for the row",
        "7",
        POSTGRES_FUNCTIONS,
        (
            (
                "lock_key = a_key FOR NO KEY UPDATE;\n    at := ",
                "false;\n    at := ",
            ),
        ),
        CALLING.format("who_joins_sees_what_it_has_waited_for[join_queue]"),
    ),
    Mutant(
        "postgres: who holds listens",
        "13",
        "stores/postgres/store.py",
        (('"tells_holders": False', '"tells_holders": True'),),
        LISTENING.format("who_only_holds_does_not_listen"),
    ),
    Mutant(
        "postgres: nobody stops listening",
        "13",
        POSTGRES_SIGNALS,
        (("elif left <= 0 and self._may_stop(ready):", "elif False:"),),
        LISTENING.format("when_nobody_waits_any_more_nobody_listens"),
    ),
    Mutant(
        "postgres: who stops listening does not look once more",
        "P8",
        POSTGRES_SIGNALS,
        (
            (
                "                if self._seconds_left() > 0:\n",
                "                if False:\n",
            ),
        ),
        LISTENING.format("who_begins_to_wait_while_the_listener_stops_is_woken"),
    ),
    # The row.
    Mutant(
        "postgres: the slow path does not lock the row",
        "7",
        POSTGRES,
        (("WHERE lock_key = :key FOR NO KEY UPDATE;", "WHERE lock_key = :key;"),),
        POSTGRES_ROWS.format("a_release_does_not_pass_a_waiter_that_is_just_joining[slow]"),
    ),
    Mutant(
        "mysql: whether a ticket goes is decided by what ROW_COUNT() says",
        "P7",
        MYSQL,
        (
            ("IS NOT NULL;\nDELETE FROM", "IS NOT NULL;\nSET @n = ROW_COUNT();\nDELETE FROM"),
            ("number = @holdfast_number;", "number = @holdfast_number AND @n = 1;"),
        ),
        MYSQL_ROWS.format("a_hand_over_whose_client_leaves_in_the_middle_is_done_as_a_whole"),
    ),
    Mutant(
        "servers: a row that was not there is not locked when it is",
        "5",
        SESSION,
        (("        if row.is_row and not locked:\n", "        if not row.is_row and locked:\n"),),
        MYSQL_ROWS.format("a_row_that_is_made_between_locking_and_reading_is_locked_after_all"),
    ),
    Mutant(
        "servers: a withdrawal makes no row to be locked",
        "5, P6",
        KEYS,
        (
            (
                "decisions.withdraw, create=True)",
                "decisions.withdraw)",
            ),
        ),
        POSTGRES_ROWS.format("a_withdrawal_of_what_has_no_row_yet_holds_all_the_same"),
    ),
    Mutant(
        "servers: conflicts are not tried again",
        "5",
        SESSIONS,
        (("return isinstance(error, Conflict) and not isinstance(error, RowLocked)", "return False"),),
        MYSQL_ROWS.format("what_the_server_rolled_back_because_of_somebody_else_is_tried_again"),
    ),
    Mutant(
        "postgres: the database sorts keys in its own way",
        "16",
        POSTGRES_SCHEMA,
        (('lock_key     text COLLATE "C" PRIMARY KEY', "lock_key     text PRIMARY KEY"),),
        POSTGRES_ROWS.format("keys_are_compared_by_bytes_whatever_the_database_sorts_by"),
    ),
    Mutant(
        "mysql: keys are compared by a collation",
        "16",
        MYSQL_SCHEMA,
        (
            (
                "holdfast_locks (\n    lock_key     VARBINARY(1020) NOT NULL,",
                "holdfast_locks (\n    lock_key     VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,",
            ),
        ),
        ON_MYSQL.format("every_key_is_another_lock"),
    ),
    # Answers that do not come.
    Mutant(
        "postgres: an answer that did not come says no",
        "17",
        POSTGRES_SESSION,
        (("unknown=unknown and sent)", "unknown=False)"),),
        POSTGRES_ROWS.format("an_answer_that_does_not_come_is_an_unknown_outcome"),
    ),
    Mutant(
        "mysql: an answer that did not come says no",
        "17",
        MYSQL_SESSION,
        (("unknown=unknown and not closed_before)", "unknown=False)"),),
        "tests/conformance/test_mysql_connecting.py::test_an_answer_that_does_not_come_is_an_unknown_outcome",
    ),
    Mutant(
        "servers: an answer that did not come says yes",
        "17",
        SESSION,
        (
            (
                "        self._send(commits=True)\n",
                (
                    "        try:\n"
                    "            self._send(commits=True)\n"
                    "        except errors.OutcomeUnknown:\n"
                    "            pass\n"
                ),
            ),
        ),
        STANDBY.format("a grant with its history-pg_terminate_backend"),
    ),
    Mutant(
        "postgres: a warning is no answer",
        "18",
        POSTGRES_SESSION,
        (('if _state(result) == "01000":', 'if _state(result) == "":'),),
        STANDBY.format("a grant-pg_cancel_backend"),
    ),
    # Fencing.
    Mutant(
        "postgres: a fence locks nothing",
        "12, P4",
        POSTGRES,
        ((" AND token = :token FOR KEY SHARE;", " AND token = :token;"),),
        ON_POSTGRES.format("nobody_is_granted_a_fenced_lock"),
    ),
    Mutant(
        "mysql: a fence locks nothing",
        "12, P4",
        MYSQL,
        ((" AND lock_key = :key LOCK IN SHARE MODE;", " AND lock_key = :key;"),),
        ON_MYSQL.format("nobody_is_granted_a_fenced_lock"),
    ),
    Mutant(
        "postgres: a fence keeps its own lease from being renewed",
        "12",
        POSTGRES,
        (("FOR KEY SHARE;", "FOR SHARE;"),),
        ON_POSTGRES.format("a_fence_of_one_key_stops_no_other"),
    ),
    Mutant(
        "postgres: nobody looks for a fence",
        "12, P4",
        POSTGRES,
        (
            (
                "FOR UPDATE SKIP LOCKED;\n\n-- name: ensure_lock",
                "FOR KEY SHARE SKIP LOCKED;\n\n-- name: ensure_lock",
            ),
        ),
        ON_POSTGRES.format("a_released_lock_stays_pinned_until_the_transaction_ends"),
    ),
    Mutant(
        "postgres: a hand-over does not look for a fence",
        "12, P4",
        POSTGRES_FUNCTIONS,
        (("       FOR UPDATE SKIP LOCKED;\n", "       FOR NO KEY UPDATE;\n"),),
        ON_POSTGRES.format("a_released_lock_stays_pinned_until_the_transaction_ends"),
    ),
    Mutant(
        "mysql: a hand-over does not look for a fence",
        "12, P4",
        MYSQL,
        (("> @holdfast_now AND @holdfast_free AND", "> @holdfast_now AND"),),
        ON_MYSQL.format("a_released_lock_stays_pinned_until_the_transaction_ends"),
    ),
    Mutant(
        "mysql: nobody looks for a fence",
        "12, P4",
        MYSQL,
        (
            (
                "WHERE s.lock_key = :key FOR UPDATE)\n   FOR UPDATE SKIP LOCKED;",
                "WHERE s.lock_key = :key FOR UPDATE);",
            ),
        ),
        MYSQL_ROWS.format("a_fenced_lease_is_not_taken_over_and_nobody_hangs"),
    ),
    Mutant(
        "servers: a fence does not mind an old snapshot",
        "P4",
        WITHIN,
        (
            (
                "if not seen:",
                "if not seen and not (seen := [(1,)]):",
            ),
        ),
        FENCING.format("a_snapshot_from_before_the_lease_is_too_old[mariadb]"),
    ),
    Mutant(
        "servers: a release in a transaction hands over",
        "Fencing",
        REHEARSING,
        (
            (
                "fenced or bool(row.lock.waiters)",
                "fenced",
            ),
        ),
        ON_POSTGRES.format("after_a_release_in_a_transaction_the_head_of_the_queue_is_next"),
    ),
    Mutant(
        "a refused fence goes unheard",
        "11, P4",
        "client/sync/leases.py",
        (
            (
                "hear(self._holding.engine.ask_within(connection, self._holding.fencing()))\n",
                "hear(self._holding.engine.ask_within(connection, self._holding.fencing()) and 0)\n",
            ),
        ),
        POSTGRES_ROWS.format("a_lease_that_only_the_database_knows_to_be_over_cannot_be_fenced[sync]"),
    ),
    Mutant(
        "a refused fence goes unheard (asyncio)",
        "11, P4",
        "client/aio/leases.py",
        (
            (
                "hear(await self._holding.engine.ask_within(connection, self._holding.fencing()))\n",
                "hear((await self._holding.engine.ask_within(connection, self._holding.fencing())) and 0)\n",
            ),
        ),
        POSTGRES_ROWS.format("a_lease_that_only_the_database_knows_to_be_over_cannot_be_fenced[async]"),
    ),
    Mutant(
        "a release in a transaction is not renewed until it is gone",
        "Fencing, P3",
        "client/sync/leases.py",
        (
            (
                "        self._holding.left_to_transaction = True\n",
                (
                    "        self._holding.left_to_transaction = True\n"
                    "        self._holding.engine.keeper.drop(self._holding.kept.grant.attempt)\n"
                ),
            ),
        ),
        FENCING.format("a_release_that_is_rolled_back_leaves_the_lease_in_our_hands[postgres]"),
    ),
    Mutant(
        "a resource elsewhere takes an older token",
        "11, P4",
        "client/fencing.py",
        ((" WHERE f.token <= excluded.token", ""),),
        FENCING.format("a_token_is_raised_on_a_resource_elsewhere[postgres]"),
    ),
    Mutant(
        "a resource elsewhere takes an older token (mysql)",
        "3, 11, P4",
        "client/fencing.py",
        (('return bool(found[0][1] == parameters["token"])', "return True"),),
        FENCING.format("a_token_is_raised_on_a_resource_elsewhere[mariadb]"),
    ),
    Mutant(
        "a table elsewhere takes two keys for one (mysql)",
        "Fencing",
        "client/fencing.py",
        (('if named != parameters["resource"]:', "if False:"),),
        CALLERS.format("a_table_that_takes_two_keys_for_one_is_refused"),
    ),
    Mutant(
        "postgres: a token is raised inside a savepoint",
        "P4, Fencing",
        "client/fencing.py",
        (("if rows and not rows[0][0]:", "if False:"),),
        FENCING.format("no_token_is_raised_inside_a_savepoint_by_sql[False-holdfast_fences]"),
    ),
    Mutant(
        "a token is raised in a nested block of SQLAlchemy's",
        "P4, Fencing",
        "client/fencing.py",
        (("if in_savepoint(connection):", "if False:"),),
        FENCING.format("no_token_is_raised_in_a_nested_block_of_sqlalchemy[mariadb-session]"),
    ),
    Mutant(
        "mysql: a transaction that a deadlock has ended is taken for an open one",
        "P4, Fencing",
        "stores/sql/callers/connections.py",
        (('        self.execute("DO 0", {})\n', ""),),
        CALLERS.format("a_transaction_that_a_deadlock_has_ended_is_none"),
    ),
    Mutant(
        "mysql: a caller's connection may speak any character set",
        "Fencing",
        "stores/sql/callers/connections.py",
        (("        self._check_characters()\n", ""),),
        CALLERS.format("a_character_set_that_means_other_keys_is_refused"),
    ),
    Mutant(
        "postgres: what a caller's pipeline has not answered yet is nothing",
        "Fencing",
        "stores/sql/callers/connections.py",
        (
            (
                "            with self._at_once():\n                cursor",
                "            if True:\n                cursor",
            ),
        ),
        CALLERS.format("a_pipeline_is_as_good_as_any_connection"),
    ),
    Mutant(
        "a cancelled task leaves a thread at work on the caller's connection",
        "P4, Fencing",
        "client/lender.py",
        (
            (
                "self._loop.call_soon_threadsafe(self._want, act, answer)",
                "return asyncio.run_coroutine_threadsafe(act(), self._loop).result()",
            ),
        ),
        CANCELLING_WITHIN.format(
            "after_a_cancellation_nothing_runs_on_the_callers_connection[release-psycopg]"
        ),
    ),
    Mutant(
        "a cancelled release that is committed is a loss",
        "Fencing, Losing",
        "client/holdings.py",
        (("        self.kept.leaving = True\n", ""),),
        CANCELLING_WITHIN.format("a_cancelled_release_is_what_the_transaction_makes_of_it"),
    ),
    # In a caller's transaction.
    Mutant(
        "servers: a refusal in a transaction is not rehearsed",
        "Fencing",
        WITHIN,
        (("if foreseen.sure and foreseen.answer is not None:", "if False:"),),
        THEIRS.format("a_refused_release_leaves_the_holder_free_to_renew[mariadb REPEATABLE READ]"),
    ),
    Mutant(
        "postgres: who is refused by a moment keeps the row",
        "Fencing",
        WITHIN,
        (('            run("back_to_mark")\n', "            pass\n"),),
        THEIRS.format("a_try_that_is_too_late_by_a_moment_leaves_nothing_locked"),
    ),
    Mutant(
        "mysql: who is refused by a moment is not told of the row",
        "Fencing",
        WITHIN,
        (("    elif not done and not run.changed_by_them:\n", "    elif False:\n"),),
        THEIRS.format(
            "what_is_too_late_by_a_moment_says_so_where_its_lock_stays[acquire-mariadb REPEATABLE READ]"
        ),
    ),
    Mutant(
        "servers: who has waited for a row is refused with it locked",
        "Fencing",
        WITHIN,
        (
            (
                "            raise RowLocked(",
                (
                    "            self._home.wait_for_row(key)\n"
                    '        if not self("lock_row", key=key):\n'
                    "            raise RowLocked("
                ),
            ),
        ),
        THEIRS.format(
            "what_is_refused_after_another_transaction_leaves_nothing_locked[mariadb REPEATABLE READ-release]"
        ),
    ),
    Mutant(
        "servers: a row that is locked twice for a moment is taken for one that stays locked",
        "Fencing, P8",
        WITHIN,
        (("TRIES = 8", "TRIES = 2"),),
        THEIRS.format("a_free_lock_is_taken_in_a_transaction_however_often_its_row_is_locked_for_a_moment"),
    ),
    Mutant(
        "mysql: as many holds are seen in a transaction as its limit allows",
        "P2, Fencing",
        WITHIN,
        ((" LIMIT {2**64 - 1} FOR UPDATE", " FOR UPDATE"),),
        THEIRS.format("all_holds_are_counted_whatever_the_limit_of_the_caller_is"),
    ),
    Mutant(
        "sqlite: who becomes the writer while they wait is taken for the one who was",
        "Fencing",
        "stores/sqlite/glance.py",
        (("sure=now != commits", "sure=False"),),
        THEIRS.format("who_becomes_the_writer_of_the_file_while_it_is_looked_at_is_told"),
    ),
    Mutant(
        "sqlite: a busy file is taken for one that the caller writes to",
        "Fencing",
        "stores/sqlite/glance.py",
        (("            _write_at_once(theirs)\n", "            return Foreseen(None, sure=False)\n"),),
        THEIRS.format("what_is_refused_after_another_transaction_leaves_nothing_locked[sqlite-acquire]"),
    ),
    Mutant(
        "postgres: a fence does not mind a savepoint",
        "P4, Fencing",
        POSTGRES,
        (("WHEN t.whole IN (l.xmin::text::bigint, l.xmax::text::bigint) THEN", "WHEN true THEN"),),
        THEIRS.format("a_fence_inside_a_savepoint_holds_or_is_refused[postgres]"),
    ),
    Mutant(
        "postgres: a fence does not mind a savepoint beside another fence",
        "P4, Fencing",
        POSTGRES,
        (("AS m WHERE m.xid::text::bigint = t.whole) END", "AS m) END"),),
        THEIRS.format("a_fence_inside_a_savepoint_is_refused_beside_another_fence_of_the_lease"),
    ),
    Mutant(
        "postgres: a lock is taken in a savepoint",
        "P3, Fencing",
        POSTGRES,
        (("SELECT count(*) = 3 FROM pg_locks", "SELECT count(*) >= 3 FROM pg_locks"),),
        THEIRS.format("nothing_is_taken_inside_a_savepoint"),
    ),
    Mutant(
        "postgres: what is refused in a savepoint keeps the row",
        "P3, Fencing",
        WITHIN,
        (("        if nested or not done:\n", "        if not done:\n"),),
        THEIRS.format("what_is_refused_inside_a_savepoint_leaves_nothing_behind[RELEASE SAVEPOINT one]"),
    ),
    Mutant(
        "mysql: what a transaction has taken itself is somebody else's",
        "Fencing",
        WITHIN,
        (("    elif not done and not run.changed_by_them:\n", "    elif not done:\n"),),
        THEIRS.format(
            "what_a_transaction_has_taken_itself_is_busy_for_its_next_try[mariadb REPEATABLE READ]"
        ),
    ),
    Mutant(
        "servers: a lock and its holds are of two moments",
        "P3, Fencing",
        REHEARSING,
        (
            (
                "            if run.is_of_one_moment():\n                return",
                "            if True:\n                return",
            ),
        ),
        THEIRS.format("a_lease_that_is_left_once_meanwhile_can_be_released[postgres]"),
    ),
    Mutant(
        "servers: a lock that is as it was has the holds that were read",
        "P3, Fencing",
        REHEARSING,
        (("return self._has_all and super().lock", "return super().lock"),),
        THEIRS.format("a_lease_that_is_left_and_entered_meanwhile_can_be_released[postgres]"),
    ),
    Mutant(
        "mysql: a savepoint from before the first statement stays",
        "P4, Fencing",
        MYSQL_CALLING,
        (('theirs.execute("START TRANSACTION", {})', "pass"),),
        THEIRS.format("a_fence_inside_a_savepoint_holds_or_is_refused[mariadb REPEATABLE READ]"),
    ),
    Mutant(
        "mysql: a release ends the savepoint that it is in",
        "Fencing",
        MYSQL_CALLING,
        (("    if isinstance(request, Release):\n        return\n", ""),),
        THEIRS.format(
            "a_release_is_as_good_in_a_savepoint_that_is_the_first_thing_in_a_transaction[True-session]"
        ),
    ),
    Mutant(
        "mysql: a snapshot that must be the newest is written to",
        "Fencing",
        MYSQL_CALLING,
        (("if len(level) > 1 and level[2] and", "if len(level) > 1 and False and"),),
        THEIRS.format(
            "a_snapshot_that_must_be_the_newest_is_fenced_and_not_written_to[mariadb REPEATABLE READ]"
        ),
    ),
    Mutant(
        "mysql: a fence does not mind two phases",
        "P4, Fencing",
        MYSQL_CALLING,
        (("return _number(error) == UNKNOWN_XID", "return False"),),
        THEIRS.format("mariadb_cannot_fence_in_two_phases[driver]"),
    ),
    Mutant(
        "postgres: a notification makes two phases fail",
        "Fencing",
        POSTGRES,
        ((":payload) WHERE current_setting('max_prepared_transactions') = '0'", ":payload)"),),
        THEIRS.format("postgresql_fences_and_releases_in_two_phases_whoever_waits"),
    ),
    Mutant(
        "postgres: a release makes the caller's commit asynchronous",
        "Fencing",
        POSTGRES,
        (
            (
                "WHERE current_setting('max_prepared_transactions') = '0'",
                "WHERE set_config('synchronous_commit', 'off', true) IS NOT NULL",
            ),
        ),
        THEIRS.format("a_release_in_a_transaction_leaves_its_commit_as_durable_as_it_was"),
    ),
    Mutant(
        "postgres: any isolation level will do to release",
        "Fencing",
        POSTGRES_DIALECT,
        (('if level[1] not in ("read committed", "read uncommitted"):', "if False:"),),
        THEIRS.format("postgresql_releases_and_takes_only_at_read_committed[REPEATABLE READ]"),
    ),
    Mutant(
        "mysql: a fence reads the row",
        "Fencing",
        MYSQL,
        (
            (
                "(by_token) WHERE token = :token AND lock_key = :key;",
                "(PRIMARY) WHERE token = :token AND lock_key = :key;",
            ),
        ),
        THEIRS.format("a_fence_is_in_the_way_of_no_renewal_at_any_level[mariadb SERIALIZABLE]"),
    ),
    Mutant(
        "mysql: holds are locked by range",
        "Fencing",
        WITHIN,
        (('(name == "read_holds" and not self.changed_by_them)', "False"),),
        THEIRS.format(
            "what_is_done_to_one_key_in_a_transaction_makes_no_other_busy[mariadb REPEATABLE READ-left again]"
        ),
    ),
    # Sessions that mean what they say.
    Mutant(
        "postgres: a key is in whatever encoding was set",
        "P2",
        POSTGRES_PINNING,
        (('    "client_encoding": "UTF8",\n', ""),),
        HOSTILE.format("a_name_has_one_holder_on_postgresql[url]"),
    ),
    Mutant(
        "postgres: a grant is as durable as the role's commits",
        "P2",
        POSTGRES_PINNING,
        (("ELSE 'on' END", "ELSE current_setting('synchronous_commit') END"),),
        HOSTILE.format("every_session_on_postgresql_has_what_is_pinned"),
    ),
    Mutant(
        "postgres: a session that is shared is used as it is",
        "P2",
        POSTGRES_SESSION,
        (('full += [("begin", {}), (PIN, {})]', 'full += [("begin", {})]'),),
        HOSTILE.format("a_name_has_one_holder_on_postgresql[pool]"),
    ),
    Mutant(
        "mysql: a commit begins the next transaction",
        "P2",
        MYSQL_PINNING,
        (('    "completion_type": "NO_CHAIN",', "    #"),),
        HOSTILE.format("a_name_has_one_holder_on_mariadb[url]"),
    ),
    Mutant(
        "mysql: holds are counted up to a limit",
        "P2",
        MYSQL_PINNING,
        (('    "sql_select_limit": "18446744073709551615",\n', ""),),
        HOSTILE.format("a_semaphore_keeps_its_number_on_mariadb[url]"),
    ),
    Mutant(
        "mysql: any node of a cluster may be used",
        "19, P4",
        "stores/mysql/galera.py",
        (("    return sight.age > LEASE and not sight.held", "    return True"),),
        "tests/conformance/test_mysql_galera.py::test_a_node_may_be_used_if_no_other_one_is",
    ),
    # Where the locks are.
    Mutant(
        "postgres: of several hosts the last one is taken, and nothing said",
        "P2",
        "stores/sql/options.py",
        (('.count("host") > 1', '.count("host") > 9'),),
        ADDRESSES.format("a_url_that_cannot_mean_the_same_is_refused_with_what_to_write"),
    ),
    Mutant(
        "mysql: a certificate that sqlalchemy would check is not checked",
        "P2",
        "stores/addresses.py",
        (('("ssl_verify_cert", "ssl_verify_identity")', "()"),),
        ADDRESSES.format("a_url_in_their_spelling_means_what_it_means_there"),
    ),
    Mutant(
        "server: a file in the spelling of sqlalchemy need not be on the disk before the answer",
        "P1",
        "server/admission/safety.py",
        (("address_of(settings.url or default())", "settings.url or default()"),),
        "tests/server/test_settings.py::"
        "test_a_file_is_written_to_the_disk_before_each_answer_unless_the_url_says_otherwise",
    ),
    Mutant(
        "sqlite: an engine in memory is taken for one on a file",
        "P2",
        "stores/addresses.py",
        (('    if path == ":memory:":', '    if path == "memory":'),),
        ADDRESSES.format("an_engine_that_is_not_on_a_file_is_refused"),
    ),
)
