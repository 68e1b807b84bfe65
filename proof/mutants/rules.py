"""Flaws for traps of the design, and rules for stores, that no other mutant breaks. Each names its test."""

from __future__ import annotations

from proof.mutants.databases import (
    KEYS,
    LAZY,
    MANY,
    MYSQL,
    MYSQL_ROWS,
    MYSQL_SCHEMA,
    ON_POSTGRES,
    POSTGRES,
    POSTGRES_FUNCTIONS,
    POSTGRES_ROWS,
    POSTGRES_SCHEMA,
    SHARED,
    TRANSACTOR,
    WITHIN,
)
from proof.mutants.mutant import (
    BASE,
    DECIDING,
    MEMORY_SUITE,
    OPERATIONS,
    SETTLING,
    SQL,
    SQLITE_SUITE,
    Mutant,
)

MEMORY_STORE = "stores/memory/store.py"
SQLITE_SCHEMA = "stores/sqlite/schema/001_locks.sql"
DATABASE = "stores/sqlite/database.py"
IDENTITY = "identity.py"
SAFETY = "server/admission/safety.py"
MYSQL_CONNECTING = "stores/mysql/connections.py"

SECONDS = "1000000 * CAST(strftime('%s', 'now') AS INTEGER)"

RULES = "tests/mutants/test_rules.py::test_{}"
CLOCKS = "tests/faults/test_servers_clocks.py::test_{}"

RULES_MUTANTS = (
    Mutant(
        "sqlite: the clock counts whole seconds",
        "2",
        SQL,
        (
            (
                "(SELECT :clock AS now) AS t\n WHERE NOT EXISTS (SELECT 1 FROM",
                f"(SELECT coalesce(:now, {SECONDS}) AS now) AS t\n WHERE NOT EXISTS (SELECT 1 FROM",
            ),
        ),
        RULES.format("a_lease_begins_when_it_is_granted"),
    ),
    Mutant(
        "sqlite: a request keeps its transaction open",
        "6",
        DATABASE,
        (
            (
                "work(Transaction(connection))\n            connection.execute(SQL.commit)\n",
                "work(Transaction(connection))\n",
            ),
        ),
        f"{SQLITE_SUITE}::test_an_attempt_can_be_ended_by_another_client[sync]",
    ),
    Mutant(
        "sqlite: a server need not wait for the disk",
        "14",
        SAFETY,
        (('synchronous=full"', 'synchronous=normal"'),),
        "tests/server/test_settings.py"
        "::test_a_file_is_written_to_the_disk_before_each_answer_unless_the_url_says_otherwise",
    ),
    Mutant(
        "sqlite: whoever asks for the disk does not get it",
        "14, P2",
        DATABASE,
        (('f"PRAGMA synchronous = {self._synchronous}"', '"PRAGMA synchronous = normal"'),),
        RULES.format("whoever_asks_for_the_disk_gets_it"),
    ),
    Mutant(
        "sqlite: a reader becomes a writer",
        "15",
        SQL,
        (("BEGIN IMMEDIATE;", "BEGIN;"),),
        RULES.format("who_writes_waits_for_the_file_before_it_reads"),
    ),
    Mutant(
        "sqlite: whoever finds the file busy gives up",
        "15",
        DATABASE,
        (("time.monotonic() + (self._busy_timeout if within is None else within)", "time.monotonic()"),),
        RULES.format("a_writer_is_waited_for"),
    ),
    Mutant(
        "sqlite: keys are compared without regard to case",
        "16",
        SQLITE_SCHEMA,
        (
            (
                "lock_key     TEXT PRIMARY KEY,     -- c",
                "lock_key     TEXT COLLATE NOCASE PRIMARY KEY,     -- c",
            ),
        ),
        f"{SQLITE_SUITE}::test_every_key_is_another_lock[sync]",
    ),
    Mutant(
        "memory: two worlds for one name",
        "20",
        MEMORY_STORE,
        (("return _shared.setdefault((os.getpid(), name), World())", "return World()"),),
        f"{MEMORY_SUITE}::test_clients_share_locks[sync]",
    ),
    Mutant(
        "memory: a dead holder holds for ever",
        "20, P8",
        SETTLING,
        (("lock.holds.items() if hold.end <= now}", "lock.holds.items() if hold.end <= 0}"),),
        seed=0,
    ),
    Mutant(
        "memory: success leaves the queue behind",
        "20",
        OPERATIONS,
        (
            (
                "                told += 1\n            del lock.tickets[attempt]\n",
                "                told += 1\n",
            ),
        ),
        f"{MEMORY_SUITE}::test_a_ticket_that_was_told_is_gone[sync]",
    ),
    Mutant(
        "ticket numbers come from a cached sequence",
        "22, P7",
        DECIDING,
        (("lock.tickets.add(lock.next_ticket, request)", "lock.tickets.add(lock.next_ticket ^ 1, request)"),),
        seed=0,
    ),
    Mutant(
        "sqlite: a release deletes the row",
        "10, store rules",
        SQL,
        (
            (
                (
                    "UPDATE holdfast_locks\n"
                    "   SET owner = NULL, attempt = NULL, last_attempt = attempt, claimed = 1,\n"
                    "       expires_at = :clock\n WHERE lock_key = :key AND attempt"
                ),
                "DELETE FROM holdfast_locks\n WHERE lock_key = :key AND attempt",
            ),
        ),
        f"{SQLITE_SUITE}::test_tokens_rise_from_lease_to_lease[sync]",
    ),
    Mutant(
        "the default owner is a name and a number",
        "store rules",
        IDENTITY,
        (("-{os.urandom(6).hex()}", "-0"),),
        RULES.format("two_processes_that_do_the_same_are_two_owners"),
    ),
)

RULES_MUTANTS_ON_SERVERS = (
    Mutant(
        "postgres: a renewal need not reach the disk",
        "14, P2",
        POSTGRES,
        (
            (
                "   AND l.expires_at > :clock\nRETURNING due.place",
                f"   AND l.expires_at > :clock\n   AND {LAZY}\nRETURNING due.place",
            ),
        ),
        POSTGRES_ROWS.format("a_grant_is_on_the_disk_when_it_is_answered_and_a_release_need_not_be"),
    ),
    Mutant(
        "servers: a break need not reach the disk",
        "14, store rules",
        KEYS,
        (
            (
                "rule(lock, request), **how)",
                "rule(lock, request), **{'lazily': lambda _: rule is decisions.break_, **how})",
            ),
        ),
        RULES.format("what_others_rely_on_is_on_the_disk_when_it_is_answered[break]"),
    ),
    Mutant(
        "servers: a withdrawal need not reach the disk",
        "14, store rules",
        KEYS,
        (
            (
                "rule(lock, request), **how)",
                "rule(lock, request), **{'lazily': lambda _: rule is decisions.withdraw, **how})",
            ),
        ),
        RULES.format("what_others_rely_on_is_on_the_disk_when_it_is_answered[withdrawal]"),
    ),
    Mutant(
        "postgres: a release waits for the disk",
        "14, store rules",
        POSTGRES,
        (
            (
                f"   AND notes IS NULL\n   AND {LAZY}\nRETURNING token;",
                "   AND notes IS NULL\nRETURNING token;",
            ),
        ),
        POSTGRES_ROWS.format("a_grant_is_on_the_disk_when_it_is_answered_and_a_release_need_not_be"),
    ),
    Mutant(
        "servers: the client's clock decides",
        "2",
        BASE,
        (
            (
                "from collections.abc import Awaitable, Callable, Sequence\n",
                "import time\nfrom collections.abc import Awaitable, Callable, Sequence\n",
            ),
            (
                "return None if now is None else micros(now)",
                "return micros(time.time() if now is None else now)",
            ),
        ),
        CLOCKS.format("the_lease_of_a_dead_client_lasts_its_ttl_whatever_its_clock_said[postgres-+1h]"),
    ),
    Mutant(
        "postgres: the end is computed before the wait",
        "2, store rules",
        POSTGRES,
        (
            (
                "       expires_at = :clock + :ttl,\n       owner",
                "       expires_at = excluded.expires_at,\n       owner",
            ),
        ),
        POSTGRES_ROWS.format("a_lease_that_was_waited_for_is_born_with_its_whole_ttl[fast]"),
    ),
    Mutant(
        "mysql: a server whose clock stands still is good enough",
        "2, store rules",
        MYSQL_CONNECTING,
        (("    if before == after:\n", "    if before > after:\n"),),
        "tests/conformance/test_mysql_connecting.py::test_a_clock_that_stands_still_is_refused",
    ),
    Mutant(
        "postgres: an upsert takes a held lock",
        "3",
        POSTGRES,
        (
            ("AND (owner IS NOT NULL OR waiters > 0 OR", "AND (waiters > 0 OR"),
            (" WHERE l.owner IS NULL AND l.waiters = 0 AND l.last", " WHERE l.waiters = 0 AND l.last"),
        ),
        ON_POSTGRES.format("clients_share_locks"),
    ),
    Mutant(
        "mysql: a key may have two rows",
        "4",
        MYSQL_SCHEMA,
        (
            (
                "    PRIMARY KEY (lock_key),\n    -- A fence",
                "    PRIMARY KEY (lock_key, granted_at),\n    -- A fence",
            ),
        ),
        RULES.format("who_makes_a_row_waits_for_who_has_just_made_it"),
    ),
    Mutant(
        "postgres: nothing ends the transaction of who stands still",
        "6",
        "stores/postgres/variables.py",
        (('    "idle_in_transaction_session_timeout": "3s",\n', ""),),
        RULES.format("a_session_has_no_transaction_open_for_long"),
    ),
    Mutant(
        "mysql: nothing ends the transaction of who stands still",
        "6",
        "stores/mysql/variables.py",
        (('        "idle_transaction_timeout": "3",\n', ""),),
        "tests/conformance/test_mysql_connecting.py::test_a_session_is_set_up_to_wait_for_nothing_long",
    ),
    Mutant(
        "servers: a request keeps its transaction open",
        "6",
        TRANSACTOR,
        (
            (
                "run.commit(deal.signals, lazily=lazily, read=read), deal",
                "run('now', now=None), deal",
            ),
        ),
        RULES.format("a_request_leaves_no_transaction_open[postgres]"),
    ),
    Mutant(
        "mysql: the slow path does not lock the row",
        "7, 19",
        MYSQL,
        (
            (
                "SELECT 1 FROM holdfast_locks FORCE INDEX (PRIMARY) WHERE lock_key = :key FOR UPDATE;",
                "SELECT 1 FROM holdfast_locks FORCE INDEX (PRIMARY) WHERE lock_key = :key;",
            ),
        ),
        MYSQL_ROWS.format("a_row_that_is_made_between_locking_and_reading_is_locked_after_all"),
    ),
    Mutant(
        "postgres: events get their places as they are written",
        "21",
        POSTGRES_SCHEMA,
        (
            (
                "    feed         bigint,               -- its place",
                "    feed         bigint DEFAULT nextval('holdfast_history_feed'),  -- its place",
            ),
            (
                "CREATE TABLE holdfast_history (",
                "CREATE SEQUENCE holdfast_history_feed;\nCREATE TABLE holdfast_history (",
            ),
        ),
        RULES.format("an_event_that_commits_late_is_seen_by_who_has_read_a_later_one[postgres]"),
    ),
    Mutant(
        "mysql: events get their places as they are written",
        "21",
        MYSQL_SCHEMA,
        (
            (
                "    feed         BIGINT,               --",
                "    feed         BIGINT NOT NULL AUTO_INCREMENT,  --",
            ),
        ),
        RULES.format("an_event_that_commits_late_is_seen_by_who_has_read_a_later_one[mariadb]"),
    ),
    Mutant(
        "mysql: who gives places is not alone",
        "21",
        SHARED,
        (
            (
                "SELECT last FROM holdfast_feed WHERE id = 1 FOR UPDATE;",
                "SELECT last FROM holdfast_feed WHERE id = 1;",
            ),
        ),
        RULES.format("who_gives_events_their_places_is_alone"),
    ),
    Mutant(
        "postgres: ticket numbers come from a cached sequence",
        "22, P7",
        POSTGRES_FUNCTIONS,
        (("l.next_ticket - 1\n", "l.next_ticket + (l.next_ticket % 2) * 2\n"),),
        ON_POSTGRES.format("the_queue_is_served_in_order_to_its_end"),
    ),
    Mutant(
        "postgres: a refusal locks the row",
        "store rules",
        POSTGRES,
        (
            (
                "AND (owner IS NOT NULL OR waiters > 0 OR notes IS NOT NULL))\n   AND NOT",
                "AND notes IS NOT NULL)\n   AND NOT",
            ),
        ),
        RULES.format("a_refusal_waits_for_no_row"),
    ),
    Mutant(
        "servers: a refusal takes the slow path",
        "store rules",
        KEYS,
        (("if plain and not request.wait and (busy", "if plain and request.wait and (busy"),),
        POSTGRES_ROWS.format("a_refusal_waits_for_no_row_and_locks_none"),
    ),
    Mutant(
        "mysql: a sweep does not lock what it deletes",
        "store rules, Sweep",
        MYSQL,
        (
            (
                "l.expires_at <= :idle_since\n   FOR UPDATE SKIP LOCKED;\nDELETE l",
                "l.expires_at <= :idle_since;\nDELETE l",
            ),
        ),
        MYSQL_ROWS.format("a_sweep_passes_by_what_is_locked_or_fenced"),
    ),
    Mutant(
        "servers: a sweep deletes rows as soon as they are free",
        "store rules, Sweep",
        MANY,
        ((", now - micros(request.idle)\n", ", now\n"),),
        ON_POSTGRES.format("locks_that_were_free_for_an_hour_are_forgotten"),
    ),
    Mutant(
        "servers: tables of another store will do",
        "store rules, P4",
        WITHIN,
        (("not rows or rows[0][0] != home.sessions.store_id()", "not home.sessions.store_id()"),),
        RULES.format("tables_of_another_store_are_refused"),
    ),
    Mutant(
        "mysql: the listener sleeps without looking",
        "store rules, P8",
        MYSQL,
        (
            (
                "OR EXISTS (SELECT 1 FROM holdfast_signals WHERE instance = :instance), 0,",
                "AND 1 = 0, 0,",
            ),
        ),
        RULES.format("a_listener_looks_before_it_sleeps"),
    ),
)
