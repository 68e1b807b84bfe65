"""Flaws that histories under faults have found in holdfast itself, planted again: see `mutant`."""

from __future__ import annotations

from proof.mutants.databases import MYSQL_ROWS, MYSQL_SIGNALS
from proof.mutants.mutant import Mutant

FORKING = "tests/faults/test_forking.py::test_{}"
FORKED = "tests/clients/test_forked.py::test_{}"
LISTENER = "stores/signals.py"
MYSQL_LISTENER = "stores/mysql/signals.py"
MYSQL_CONNECTING = "tests/conformance/test_mysql_connecting.py::test_{}"
TAKEN_AWAY = "tests/clients/test_sqlite_taken_away.py::test_{}"
READINESS = "tests/server/test_readiness.py::test_{}"

FOUND_MUTANTS = (
    Mutant(
        "a forked child has what its parent is just releasing",
        "P2, Losing",
        "client/holdings.py",
        (("if self._forks != identity.forks:\n            self.kept", "if False:\n            self.kept"),),
        FORKING.format("a_lease_that_is_being_released_is_not_the_childs_either"),
    ),
    Mutant(
        "a forked child releases what its parent has lost",
        "P2, Losing",
        "client/holdings.py",
        (("if kept.lost is not None and self._forks != identity.forks:", "if False:"),),
        FORKING.format("a_lease_that_was_lost_before_is_not_released_by_the_child"),
    ),
    Mutant(
        "a task goes on in a forked child",
        "P2, Forking",
        "client/engine.py",
        (
            (
                '        raise errors.HoldfastError("the process that forked this one',
                '        str("',
            ),
        ),
        FORKED.format("a_task_that_waits_leaves_the_ticket_to_the_parent[woken]"),
    ),
    Mutant(
        "a cancelled task withdraws its parent's ticket in a forked child",
        "P5, Forking",
        "client/aio/engine.py",
        (("if self.client is running.client:", "if True:"),),
        FORKED.format("a_task_that_waits_leaves_the_ticket_to_the_parent[cancelled]"),
    ),
    Mutant(
        "sqlite: who fails after a commit tells nobody of it",
        "P8, Waking",
        "stores/sqlite/sessions.py",
        (
            (
                "in afterwards:\n                work()",
                "in () if __import__('sys').exc_info()[0] else afterwards:\n                work()",
            ),
        ),
        "tests/conformance/test_sqlite_bells.py"
        "::test_what_was_committed_is_told_even_if_the_request_fails_afterwards",
    ),
    Mutant(
        "sqlite: a file that was not opened yet is another one",
        "Fencing",
        "stores/sqlite/sessions.py",
        (("if not self.database.file.id:", "if False:"),),
        "tests/clients/test_fencing.py::test_a_lock_can_be_taken_with_the_commit_as_the_first_thing_of_all",
    ),
    Mutant(
        "sqlite: what a caller's connection makes of rows is taken as it is",
        "Fencing",
        "stores/sql/callers/connections.py",
        (("sqlite3.Cursor(self._connection)", "self._connection.cursor()"),),
        "tests/clients/test_callers.py::test_what_a_file_makes_of_rows_and_text_does_not_matter[bytes-<lambda>]",
    ),
    Mutant(
        "sqlite: who is refused a fence waits for those who wait for it",
        "P8, Fencing",
        "stores/sqlite/dialect.py",
        (
            (
                "        return glance.glance(",
                "        with self.sessions.mutex:\n            pass\n        return glance.glance(",
            ),
        ),
        "tests/clients/test_fencing.py"
        "::test_who_is_refused_a_fence_does_not_wait_for_those_who_wait_for_its_transaction",
    ),
    Mutant(
        "a ticket that is written is called not written",
        "P6, Waiting",
        "stores/sql/rules/circles.py",
        (("raise errors.OutcomeUnknown(str(error)) from error", "raise"),),
        "tests/clients/test_waiting.py::test_who_gives_up_after_trouble_leaves_no_ticket[sync-sqlite]",
    ),
)

FOUND_MUTANTS_ON_SERVERS = (
    Mutant(
        "mysql: every listener sleeps",
        "Waking",
        "stores/mysql/statements.sql",
        (("IF(:awaited = '', SLEEP(:seconds)", "IF(:awaited <> '', SLEEP(:seconds)"),),
        MYSQL_SIGNALS.format("no_listener_sleeps_and_when_the_first_leaves_another_one_is"),
    ),
    Mutant(
        "mysql: what a pool of the caller raises ends the thread that asks for a second connection",
        "Waking",
        MYSQL_LISTENER,
        (
            (
                "        except Exception as error:  # noqa: BLE001 - a pool",
                "        except errors.StoreError as error:  # noqa: BLE001 - a pool",
            ),
        ),
        MYSQL_SIGNALS.format("a_listener_that_has_nothing_to_wait_for_sleeps_and_is_told_all_the_same"),
    ),
    Mutant(
        "mysql: a listener sleeps on, although it could wait for a lock",
        "Waking",
        MYSQL_LISTENER,
        (("SHORT_REST if is_busy and not lock else REST", "REST"),),
        MYSQL_SIGNALS.format("a_listener_is_told_while_its_second_connection_takes_long"),
    ),
    Mutant(
        "mysql: a second connection takes what is left for others",
        "Waking",
        MYSQL_LISTENER,
        (("        if not has_room:\n", "        if False:\n"),),
        MYSQL_SIGNALS.format("a_second_connection_leaves_the_last_ones_to_whoever_needs_them"),
    ),
    Mutant(
        "mysql: who cannot tell whether there is room listens no more",
        "Waking",
        MYSQL_LISTENER,
        (
            (
                "        except Exception as error:  # noqa: BLE001 - whatever",
                "        except ZeroDivisionError as error:  #",
            ),
        ),
        MYSQL_SIGNALS.format("a_listener_outlives_that_it_cannot_be_told_whether_there_is_room"),
    ),
    Mutant(
        "mysql: a second connection that cannot be had for long is tried again at once",
        "Waking",
        MYSQL_LISTENER,
        (("            self._look_at = time.monotonic() + REST  # from", "            pass  # from"),),
        MYSQL_SIGNALS.format("to_fail_for_long_is_no_reason_to_try_again_at_once"),
    ),
    Mutant(
        "mysql: who cannot hang up leaves the second connection",
        "Waking",
        MYSQL_LISTENER,
        (
            ("            awaited.close()\n            if connection", "            if connection"),
            (
                "                self._hang_up(instance, connection)\n",
                "                self._hang_up(instance, connection)\n            awaited.close()\n",
            ),
        ),
        MYSQL_SIGNALS.format("a_second_connection_ends_although_nobody_can_hang_up"),
    ),
    Mutant(
        "mysql: closing leaves a connection that is being made",
        "Waking",
        MYSQL_LISTENER,
        (("            self._thread.join(MOMENT)\n", "            pass\n"),),
        MYSQL_SIGNALS.format("closing_waits_a_moment_for_a_second_connection_that_is_being_made"),
    ),
    Mutant(
        "mysql: a fast hand-over locks nothing first",
        "P8, Fencing",
        "stores/mysql/statements.sql",
        (
            (
                "AND token = :token AND holds = 0 AND notes IS NULL FOR UPDATE;",
                "AND token = :token AND holds = 0 AND notes IS NULL;",
            ),
        ),
        MYSQL_ROWS.format("a_fast_hand_over_waits_for_whoever_has_the_row"),
    ),
    Mutant(
        "mysql: a trigger on the table hides the token",
        "P4",
        "stores/mysql/dialect.py",
        (("if rows and not rows[0][0]:", "if False:"),),
        MYSQL_ROWS.format("a_trigger_on_the_table_does_not_hide_the_token"),
    ),
    Mutant(
        "mysql: who cannot ask for its token is told that nothing was taken",
        "P6",
        "stores/mysql/dialect.py",
        (("raise errors.OutcomeUnknown(str(error)) from error\n    return rows", "raise\n    return rows"),),
        MYSQL_ROWS.format("who_cannot_ask_for_the_hidden_token_is_not_told_that_nothing_was_taken"),
    ),
    Mutant(
        "mysql: who has the lock is told the error of the statement behind",
        "P6",
        "stores/mysql/session.py",
        (("            if not any(results):\n                raise", "            raise"),),
        MYSQL_ROWS.format("who_has_the_lock_is_told_so_whatever_becomes_of_the_statement_behind"),
    ),
    Mutant(
        "mysql: who took nothing is not told why",
        "P6",
        "stores/mysql/session.py",
        (("            if not any(results):\n                raise", "            pass"),),
        MYSQL_ROWS.format("who_took_nothing_is_told_what_became_of_the_statement_behind"),
    ),
    Mutant(
        "mysql: a trigger on the instances hides their capacity",
        "P8, Cluster",
        "stores/mysql/claims.py",
        (("if not noted or not noted[0][0] or", "if not noted or"),),
        "tests/conformance/test_mysql_claims.py"
        "::test_a_trigger_on_the_instances_does_not_hide_their_capacity",
    ),
    Mutant(
        "mysql: a dead line keeps the name of its listener",
        "Waking",
        MYSQL_LISTENER,
        (('session.fetch("hang_up", asked)', "pass"),),
        MYSQL_SIGNALS.format("a_line_that_died_without_a_word_is_hung_up"),
    ),
    Mutant(
        "mysql: the server keeps a listener that does not ask any more",
        "Waking",
        "stores/mysql/variables.py",
        (
            (
                'MARIADB: {"max_statement_time": "0", "wait_timeout": "60"},',
                'MARIADB: {"max_statement_time": "0"},',
            ),
        ),
        MYSQL_CONNECTING.format("a_listener_may_wait_but_the_server_forgets_one_that_does_not_ask_any_more"),
    ),
    Mutant(
        "mysql: a change of the tables costs a listener its line",
        "Waking",
        MYSQL_LISTENER,
        (("except Conflict:  # with", "except AssertionError:  # with"),),
        MYSQL_SIGNALS.format("a_listener_that_is_in_somebodys_way_keeps_its_line"),
    ),
    Mutant(
        "mysql: a circle of named locks is taken for a locked row",
        "Waking",
        "stores/mysql/failures.py",
        (("RowLocked: {(1205,)", "RowLocked: {(1205, 3058)"),),
        MYSQL_CONNECTING.format("errors_by_number"),
    ),
    Mutant(
        "mysql: all listeners come back at one moment",
        "Waking",
        LISTENER,
        (("stop.wait(pause * (0.5 + random.random() / 2))", "stop.wait(pause)"),),
        MYSQL_SIGNALS.format("listeners_do_not_come_back_all_at_one_moment"),
    ),
    Mutant(
        "mysql: an interrupt leaves a listener that never runs",
        "Waking",
        LISTENER,
        (
            (
                "                    thread.start()",
                "                    self._thread = thread\n                    thread.start()",
            ),
        ),
        MYSQL_SIGNALS.format("who_is_interrupted_while_the_listener_starts_has_one_the_next_time"),
    ),
    Mutant(
        "mysql: an interrupt leaves two listeners that hang each other up",
        "Waking",
        LISTENER,
        (
            (
                "if self._thread is not threading.current_thread():\n                return",
                "if False:\n                return",
            ),
        ),
        MYSQL_SIGNALS.format("who_is_interrupted_while_the_listener_starts_has_one_the_next_time"),
    ),
    Mutant(
        "mysql: a handler that fails ends the listener",
        "Waking",
        LISTENER,
        (
            (
                "if stop.is_set():\n                    return",
                "if stop.is_set() or isinstance(error, RuntimeError):\n                    return",
            ),
        ),
        MYSQL_SIGNALS.format("a_listener_outlives_a_handler_that_fails"),
    ),
    Mutant(
        "sqlite: a file that was replaced is not noticed",
        "P2, Losing",
        "stores/sqlite/database.py",
        (
            (
                "            self._look_at = now + LOOK_EVERY\n            self.file.check(self._beside)\n",
                "            self._look_at = now + LOOK_EVERY\n",
            ),
        ),
        TAKEN_AWAY.format("what_was_granted_while_the_file_was_moved_is_not_told"),
    ),
    Mutant(
        "sqlite: who connects anew goes on in another file",
        "P2, Forking",
        "stores/sqlite/samefile.py",
        (("        if self._found is not None:\n            self._compare(found)\n", ""),),
        TAKEN_AWAY.format("who_connects_anew_does_not_go_on_in_another_file[move]"),
    ),
    Mutant(
        "sqlite: another file with the same number is taken for the old one",
        "P2, Forking",
        "stores/sqlite/samefile.py",
        ((" or id not in (None, self.id)", ""),),
        TAKEN_AWAY.format("another_file_with_the_same_number_is_another_file"),
    ),
    Mutant(
        "sqlite: a deleted log is not noticed",
        "P2, Losing",
        "stores/sqlite/samefile.py",
        (('names = [f"{real}-wal", f"{real}-shm"]', "names: list[str] = []"),),
        TAKEN_AWAY.format("nothing_is_granted_or_told_in_a_file_that_is_not_there_any_more[delete_the_log]"),
    ),
    Mutant(
        "sqlite: who reads waits for who writes",
        "Requests",
        "stores/sql/store.py",
        (
            (
                "self._look(self.sessions.reader, request))",
                "self.sessions.execute(lambda each: self._look(self.sessions.reader, each), request))",
            ),
        ),
        "tests/clients/test_sqlite_trouble.py::test_reading_takes_no_turn_at_the_connection_that_writes",
    ),
    Mutant(
        "server: reads stand in line behind writes",
        "Requests",
        "server/lanes.py",
        (("self._queues[-1 if type(request) in READS else 0]", "self._queues[0]"),),
        "tests/server/test_backend.py::test_reads_have_a_line_of_their_own",
    ),
    Mutant(
        "a probe writes nothing",
        "Requests",
        "stores/sql/store.py",
        (('        fetch("write_ended", key=NO_LOCK, attempt=self._client.instance, **ended)\n', ""),),
        READINESS.format("a_probe_is_a_write"),
    ),
    Mutant(
        "server: everybody who asks whether it is ready has a write done",
        "Requests",
        "server/system/readiness.py",
        (("if self._probe is None and self._clock() - self._ended >= FRESH:", "if self._probe is None:"),),
        READINESS.format("an_outcome_is_told_for_a_moment_and_then_asked_for_again"),
    ),
    Mutant(
        "server: whether it is ready waits behind all that wait for the store",
        "Requests",
        "server/lanes.py",
        ((", type(request) is Probe", ", False"),),
        READINESS.format("it_is_ready_however_many_wait_for_the_store"),
    ),
)
