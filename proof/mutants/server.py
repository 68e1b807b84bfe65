"""Flaws in what a lock server relies on: addresses, secrets, access tokens, groups. Each names its test."""

from __future__ import annotations

from proof.mutants.databases import (
    MANY,
    MYSQL,
    MYSQL_SCHEMA,
    MYSQL_SESSION,
    ON_MYSQL,
    ON_POSTGRES,
    POSTGRES,
    SHARED,
)
from proof.mutants.mutant import CIRCLES, DECIDING, MEMORY_SUITE, OPERATIONS, SQL, Mutant

MEMORY_STORE = "stores/memory/store.py"
MEMORY_STATE = "stores/memory/state.py"
BASE = "stores/base.py"
ACQUIRING = "stores/memory/locks.py"
DATABASE = "stores/sqlite/database.py"
SQLITE_STORE = "stores/sqlite/store.py"
BELLS = "stores/sqlite/signals.py"
SIGNALS = "stores/signals.py"
FILE_SESSIONS = "stores/sqlite/sessions.py"

ON_MEMORY = MEMORY_SUITE + "::test_{}[sync]"
ON_SQLITE = "tests/conformance/test_sqlite.py::TestSQLite::test_{}[sync]"
GROUPS = "tests/conformance/test_sqlite_groups.py::test_{}"

TO_ITS_HOME = "a_signal_for_an_address_goes_to_its_home"
BY_THEIR_ADDRESSES = "a_new_head_and_a_broken_holder_are_told_by_their_addresses"
AS_LONG_AS_CAN_BE = "an_address_as_long_as_can_be"
ASKING_AGAIN = "asking_again_says_where_we_are_now"
CLAIMING = "claiming_says_where_we_are_now"
NOBODY_LEARNS = "nobody_learns_the_attempt_of_another"
GRANTED_ONCE = "a_token_is_granted_once"
ENDS = "a_token_ends_by_itself"
SWEPT = "tokens_that_have_ended_are_swept_away_and_others_are_not"

MOVED = "instance = :instance, host = :host, pid = :pid\n WHERE lock_key = :key AND attempt = :attempt;"
STAYED = "host = :host, pid = :pid\n WHERE lock_key = :key AND attempt = :attempt;"

STRANGERS = "tests/server/http/test_strangers.py::test_{}[asyncio]"
SPARED = (
    "tests/server/http/test_strangers.py::"
    "test_first_requests_are_spared_for_who_is_nearly_as_old_and_not_for_who_has_just_come"
)
BAD_DAYS = "tests/server/test_bad_days.py::test_{}"
PLAIN = "tests/server/test_plain.py::test_{}"
BACKEND = "tests/server/test_backend.py::test_{}"
FORGOTTEN = "what_was_forgotten_is_in_the_history_with_who_did_it"

SERVER_MUTANTS = (
    # Addresses.
    Mutant(
        "memory: an address is taken for an instance",
        "Addresses",
        MEMORY_STORE,
        (("home, told = r.addressed(address, signal)", "home, told = address, signal"),),
        ON_MEMORY.format(TO_ITS_HOME),
    ),
    Mutant(
        "memory: the end of an operation is told once to each home",
        "Addresses",
        OPERATIONS,
        (
            (
                "instances[ticket.client.instance] = None",
                "instances.setdefault(ticket.client.instance.partition('/')[0])",
            ),
        ),
        ON_MEMORY.format("the_end_of_an_operation_is_told_once_to_each_address"),
    ),
    Mutant(
        "sqlite: a bell does not say for whom it rings",
        "Addresses",
        SIGNALS,
        (("{signal.expires_in}\\n{signal.to}", "{signal.expires_in}\\n"),),
        ON_SQLITE.format(TO_ITS_HOME),
    ),
    Mutant(
        "sqlite: bells with long names are not found",
        "Addresses",
        BELLS,
        (("if len(instance) <= self._room:", "if len(self.instance) <= self._room:"),),
        ON_SQLITE.format(AS_LONG_AS_CAN_BE),
    ),
    Mutant(
        "memory: a ticket stays where it was",
        "Requests",
        ACQUIRING,
        (("                ticket.client = request.client  # where we can be reached now\n", ""),),
        ON_MEMORY.format(ASKING_AGAIN),
    ),
    Mutant(
        "sqlite: a ticket stays where it was",
        "Requests",
        SQL,
        ((MOVED, STAYED),),
        ON_SQLITE.format(ASKING_AGAIN),
    ),
    Mutant(
        "memory: a claim does not say where we are",
        "Requests",
        ACQUIRING,
        (("        hold.client = request.client\n", ""),),
        ON_MEMORY.format(CLAIMING),
    ),
    Mutant(
        "a claim by the slow path does not say where we are",
        "Requests",
        "stores/sql/rules/holds.py",
        (
            (
                "claimed=True, end=end, **place_of(client)",
                "claimed=True, end=end, host=client.host, pid=client.pid",
            ),
        ),
        ON_SQLITE.format(CLAIMING),
    ),
    # Secrets.
    Mutant(
        "memory: attempts are told with a deadlock",
        "Deadlocks, P5",
        CIRCLES,
        (('"; ".join(map(str, found.cycle))', '"; ".join(map(str, found.evidence))'),),
        ON_MEMORY.format(NOBODY_LEARNS),
    ),
    Mutant(
        "attempts are told with a deadlock",
        "Deadlocks, P5",
        DECIDING,
        (('"; ".join(map(str, cycle))', '"; ".join(map(str, deadlock.evidence))'),),
        ON_SQLITE.format(NOBODY_LEARNS),
    ),
    # Access tokens.
    Mutant(
        "memory: a token is replaced by one of the same id",
        "Access tokens",
        MEMORY_STORE,
        (
            (
                "            return self._world.access.setdefault(request.id, token)",
                "            self._world.access[request.id] = token\n            return token",
            ),
        ),
        ON_MEMORY.format(GRANTED_ONCE),
    ),
    Mutant(
        "sqlite: a token gets the rights of another of the same id",
        "Access tokens",
        SQL,
        (("DO UPDATE SET id = excluded.id", "DO UPDATE SET rights = excluded.rights"),),
        ON_SQLITE.format(GRANTED_ONCE),
    ),
    Mutant(
        "memory: a token lives a moment longer than its end",
        "Access tokens",
        MEMORY_STATE,
        (("micros(token.expires_at) <= now", "micros(token.expires_at) < now"),),
        ON_MEMORY.format(ENDS),
    ),
    Mutant(
        "sqlite: tokens that have ended are never forgotten",
        "Access tokens",
        MANY,
        (("        self._delete_access(now, limit)\n", ""),),
        ON_SQLITE.format(SWEPT),
    ),
    # Groups.
    Mutant(
        "half of a failed request is kept with its group",
        "Many at once",
        DATABASE,
        (("                connection.execute(SQL.undo)\n", ""),),
        GROUPS.format("of_a_request_that_fails_nothing_is_left"),
    ),
    Mutant(
        "a failed request is undone with all before it",
        "Many at once",
        DATABASE,
        (("connection.execute(SQL.undo)", "connection.execute(SQL.rollback)"),),
        GROUPS.format("of_a_request_that_fails_nothing_is_left"),
    ),
    Mutant(
        "what SQLite has rolled back is answered as done",
        "Many at once",
        DATABASE,
        (
            (
                "raise failure(error) from error  # SQLite has rolled back everything",
                "connection.execute(SQL.begin)  # SQLite has rolled back everything",
            ),
        ),
        GROUPS.format("if_everything_is_rolled_back_everything_has_failed"),
    ),
    Mutant(
        "a failed commit is answered as done",
        "Many at once",
        DATABASE,
        (
            (
                "        def whole(run: Transaction)",
                "        results = []\n\n        def whole(run: Transaction)",
            ),
            ("return [self._do_in_group(", "return results.extend(self._do_in_group("),
            (" for work in works]\n", " for work in works) or results\n"),
            ("return [type(error)(*error.args) for _ in works]", "return results"),
        ),
        GROUPS.format("if_the_commit_fails_everything_has_failed_and_nobody_is_told"),
    ),
    Mutant(
        "people are told of what was not committed",
        "Many at once",
        FILE_SESSIONS,
        (("if not isinstance(each, errors.StoreError):", "if True:"),),
        GROUPS.format("if_the_commit_fails_everything_has_failed_and_nobody_is_told"),
    ),
    Mutant(
        "each request of a group is committed by itself",
        "Many at once",
        SQLITE_STORE,
        (("if len(requests) < 2 or ", "if requests or "),),
        GROUPS.format("a_group_is_committed_once"),
    ),
    Mutant(
        "without groups one failure ends all",
        "Many at once",
        BASE,
        (("answers.append(failure(error))", "return [failure(error)] * len(requests)"),),
        GROUPS.format("without_groups_a_request_fails_alone_as_well"),
    ),
)

SERVER_MUTANTS_ON_SERVERS = (
    Mutant(
        "postgres: a notification does not say for whom it is",
        "Addresses",
        POSTGRES,
        (("                           split_part(instance, '/', 2)))", "                           ''))"),),
        ON_POSTGRES.format(TO_ITS_HOME),
    ),
    Mutant(
        "postgres: the slow path does not say for whom it is",
        "Addresses",
        SIGNALS,
        (("{signal.expires_in}\\n{signal.to}", "{signal.expires_in}\\n"),),
        ON_POSTGRES.format(BY_THEIR_ADDRESSES),
    ),
    Mutant(
        "postgres: a channel's name is longer than can be",
        "Addresses",
        POSTGRES,
        (
            (
                "pg_notify(left(:channel || split_part(instance, '/', 1), 63)",
                "pg_notify(:channel || split_part(instance, '/', 1)",
            ),
        ),
        ON_POSTGRES.format(AS_LONG_AS_CAN_BE),
    ),
    Mutant(
        "mysql: what is handed to an address is not found by its home",
        "Addresses",
        MYSQL_SCHEMA,
        (("substring_index(instance, '/', 1)", "instance"),),
        ON_MYSQL.format(TO_ITS_HOME),
    ),
    Mutant(
        "mysql: a signal does not say for whom it is",
        "Addresses",
        MYSQL_SESSION,
        (('"to": signal.to', '"to": ""'),),
        ON_MYSQL.format(BY_THEIR_ADDRESSES),
    ),
    Mutant(
        "mysql: the winner's home is not woken",
        "Addresses",
        MYSQL,
        (
            (
                "nullif(substring_index(@holdfast_instance, '/', 1), :instance)",
                "nullif(@holdfast_instance, :instance)",
            ),
        ),
        ON_MYSQL.format(TO_ITS_HOME),
    ),
    Mutant(
        "postgres: a ticket stays where it was",
        "Requests",
        SHARED,
        ((MOVED, STAYED),),
        ON_POSTGRES.format(ASKING_AGAIN),
    ),
    Mutant(
        "mysql: a ticket stays where it was",
        "Requests",
        SHARED,
        ((MOVED, STAYED),),
        ON_MYSQL.format(ASKING_AGAIN),
    ),
    Mutant(
        "postgres: a hold in its table stays where it was",
        "Requests",
        SHARED,
        ((",\n       instance = excluded.instance, host = excluded.host, pid = excluded.pid", ""),),
        ON_POSTGRES.format(CLAIMING),
    ),
    Mutant(
        "mysql: a hold in its table stays where it was",
        "Requests",
        MYSQL,
        ((",\n                            instance = :instance, host = :host, pid = :pid", ""),),
        ON_MYSQL.format(CLAIMING),
    ),
    Mutant(
        "postgres: a token gets the rights of another of the same id",
        "Access tokens",
        POSTGRES,
        (("DO UPDATE SET id = excluded.id", "DO UPDATE SET rights = excluded.rights"),),
        ON_POSTGRES.format(GRANTED_ONCE),
    ),
    Mutant(
        "mysql: a token gets the rights of another of the same id",
        "Access tokens",
        MYSQL,
        (("ON DUPLICATE KEY UPDATE id = :id", "ON DUPLICATE KEY UPDATE rights = :rights"),),
        ON_MYSQL.format(GRANTED_ONCE),
    ),
    Mutant(
        "mysql: a token that was never granted is revoked",
        "Access tokens",
        MYSQL,
        (
            (
                "FROM (SELECT 1) AS once LEFT JOIN holdfast_access AS a FORCE INDEX (PRIMARY) ON a.id = :id",
                "FROM holdfast_access AS a FORCE INDEX (PRIMARY) WHERE a.id = :id",
            ),
        ),
        ON_MYSQL.format("a_revoked_token_is_gone"),
    ),
    Mutant(
        "postgres: a token that has ended is listed",
        "Access tokens",
        SHARED,
        ((" WHERE expires_at IS NULL OR expires_at > :clock", " WHERE true OR expires_at > :clock"),),
        ON_POSTGRES.format(ENDS),
    ),
    Mutant(
        "servers: tokens that have ended are never forgotten",
        "Access tokens",
        MANY,
        (("        self._delete_access(now, limit)\n", ""),),
        ON_POSTGRES.format(SWEPT),
    ),
    # Who is not let in, and who asks for too much.
    Mutant(
        "server: a full server refuses whoever comes, and strangers stay",
        "Access tokens",
        "server/http/door.py",
        (('self._make_room("full", strangers.oldest(), remote)', "pass"),),
        STRANGERS.format("the_oldest_stranger_makes_room_when_the_server_is_full"),
    ),
    Mutant(
        "server: strangers that keep themselves busy stay",
        "Access tokens",
        "server/http/connection.py",
        (("self._state == HANDLING and not self._answered", "self._state == HANDLING"),),
        STRANGERS.format("strangers_that_keep_themselves_busy_make_room_as_others_do"),
    ),
    Mutant(
        "server: slow first requests push out who has just come",
        "Access tokens",
        "server/http/strangers.py",
        (("islice(strangers, len(strangers) // 2 + 1)", "islice(strangers, None)"),),
        SPARED,
    ),
    Mutant(
        "server: what the store says is a line for each stranger",
        "Access tokens",
        "server/app.py",
        (("            if known:\n", "            if True:\n"),),
        BAD_DAYS.format("what_the_store_says_is_logged_sparingly_for_who_is_not_let_in"),
    ),
    Mutant(
        "server: a key that is no string is a part of the answer",
        "Access tokens",
        "core/wire/shapes.py",
        (("        return _read_key(value, name)\n", "        return keys.validate(value)\n"),),
        BAD_DAYS.format("what_should_be_a_key_and_is_nested_is_the_callers_mistake[leases]"),
    ),
    Mutant(
        "server: who was let in makes room for strangers",
        "Access tokens",
        "server/http/connection.py",
        (("        self._listener.strangers.drop(self)\n", ""),),
        STRANGERS.format("who_was_let_in_does_not_make_room"),
    ),
    Mutant(
        "server: strangers stay where files are the limit",
        "Access tokens",
        "server/http/listener.py",
        (("if error.errno in (errno.EMFILE, errno.ENFILE) and len(self.strangers):", "if False:"),),
        "tests/server/test_abuse.py::test_strangers_make_room_where_files_are_the_limit",
    ),
    Mutant(
        "server: who has left stays among the strangers",
        "Access tokens",
        "server/http/connection.py",
        (
            (
                "  # the peer left in the same moment\n",
                "\n            self._listener.strangers.add(self, self.remote)\n",
            ),
        ),
        STRANGERS.format("who_has_left_is_not_kept_as_a_stranger"),
    ),
    Mutant(
        "server: a TLS handshake may take for ever",
        "Access tokens",
        "server/http/connection.py",
        (
            (
                "        self._within(self._limits.head_time)\n        self._handshake =",
                "        self._handshake =",
            ),
        ),
        STRANGERS.format("a_handshake_that_does_not_come_is_told_and_so_is_one_that_is_none"),
    ),
    Mutant(
        "server: the loop waits for whoever writes",
        "Many at once",
        "server/lanes.py",
        (('cast("GroupingStore", self.store).try_many', "self.store.execute_many"),),
        BACKEND.format("the_loop_waits_for_nobody_who_writes"),
    ),
    Mutant(
        "server: a turn of those who have gone never ends",
        "Many at once",
        "server/lanes.py",
        ((", asks_all=True", ""),),
        BACKEND.format("a_turn_ends_though_all_who_had_it_have_gone"),
    ),
    Mutant(
        "server: a request that fails stays counted as asked",
        "Access tokens",
        "server/exchange.py",
        (("        self._plain.end(self._call)\n", ""),),
        PLAIN.format("a_store_that_fails_is_told_and_what_was_asked_counts_no_more"),
    ),
    Mutant(
        "server: an owner is a plain hash of its attempt",
        "Access tokens",
        "server/admission/access.py",
        (("hmac.digest(secret,", 'hmac.digest(b"",'),),
        BAD_DAYS.format("an_owner_does_not_give_its_attempt_away"),
    ),
    Mutant(
        "server: everybody may have every event kept",
        "Access tokens",
        "server/app.py",
        (('and not principal.everywhere("admin")', 'and not principal.any("acquire")'),),
        BAD_DAYS.format("the_history_that_callers_may_ask_for_has_a_ceiling"),
    ),
    Mutant(
        "memory: forgotten work leaves no trace",
        "Cluster",
        "stores/memory/work.py",
        (
            (
                'self._record(shard, lock, "forgotten", now, owner=None, token=work.token, by=request.by)',
                "pass",
            ),
        ),
        ON_MEMORY.format(FORGOTTEN),
    ),
    Mutant(
        "sql: forgotten work leaves no trace",
        "Cluster",
        "stores/sql/rules/work.py",
        (('    lock.record("forgotten", owner=None, token=work.token, by=request.by)\n', ""),),
        ON_SQLITE.format(FORGOTTEN),
    ),
)
