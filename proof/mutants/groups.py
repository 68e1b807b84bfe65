"""Flaws in how requests of several tasks share a transaction on PostgreSQL. Each names its test."""

from __future__ import annotations

from proof.mutants.databases import POSTGRES, POSTGRES_SESSION
from proof.mutants.mutant import Mutant

GROUPS = "client/groups.py"
TOGETHER = "stores/sql/transactions/together.py"
SQL_GROUPS = "stores/postgres/groups.py"
LANES = "server/lanes.py"
QUEUES = "server/queues.py"

TASKS = "tests/unit/test_groups.py::test_{}"
ON_POSTGRES = "tests/conformance/test_postgres_groups.py::test_{}"
ON_SERVER = "tests/server/test_backend.py::test_{}"

GROUP_MUTANTS = (
    Mutant(
        "two requests about one key are asked together",
        "Many at once",
        GROUPS,
        (("group.setdefault(request.key, asked)", "group.setdefault(request, asked)"),),
        TASKS.format("no_key_is_twice_in_a_group_nor_are_there_too_many"),
    ),
    Mutant(
        "a request that waits for a row holds up all tasks",
        "Many at once",
        GROUPS,
        (("if self._lanes_taken() < LANES:", "if not self._is_busy():"),),
        TASKS.format("one_that_is_stuck_takes_no_lane"),
    ),
    Mutant(
        "a group that does not come back holds up all tasks",
        "Many at once",
        GROUPS,
        ((" and group[1] > stuck]", "]"),),
        TASKS.format("a_group_that_does_not_come_back_takes_no_lane_for_long"),
    ),
    Mutant(
        "whom a group has no room for waits until one comes back",
        "Many at once",
        GROUPS,
        (("            self._send_group()\n", "            return self._send_group()\n"),),
        TASKS.format("a_group_that_does_not_come_back_holds_up_nobody_for_whom_it_had_no_room"),
    ),
    Mutant(
        "what a group could not do is asked for nobody",
        "P6",
        GROUPS,
        (("                elif not answer.done():\n", "                else:\n"),),
        TASKS.format("a_task_that_is_cancelled_leaves_its_group_alone"),
    ),
    Mutant(
        "a child asks what its parent's tasks wanted",
        "P2",
        GROUPS,
        ((" or os.getpid() != self._process:", ":"),),
        TASKS.format("in_a_forked_child_nothing_is_asked_for_the_parent"),
    ),
    Mutant(
        "an interrupt leaves tasks that wait for ever",
        "P6",
        GROUPS,
        (("            _give_up(waiting, error)\n            raise\n", "            raise\n"),),
        TASKS.format("an_interrupt_leaves_no_task_waiting_for_ever"),
    ),
)

GROUP_MUTANTS_ON_SERVERS = (
    Mutant(
        "server: two requests about one key are asked together",
        "P2",
        LANES,
        (('first.setdefault(cast("Any", asked[0]).key, asked)', "first.setdefault(str(asked[0]), asked)"),),
        ON_SERVER.format("who_has_to_wait_for_a_row_holds_up_nobody_who_came_with_him"),
    ),
    Mutant(
        "server: of those whom a group has left one is asked for after the other",
        "P8",
        QUEUES,
        (("self._changed.notify(len(asked))", "self._changed.notify()"),),
        ON_SERVER.format("who_has_to_wait_for_a_row_holds_up_nobody_who_came_with_him"),
    ),
    Mutant(
        "server: a group that does not come back holds up those who wait for the next one",
        "P8",
        LANES,
        (("if queue.is_stuck(STUCK) and (left", "if queue.closed and (left"),),
        ON_SERVER.format("nobody_waits_for_a_group_that_does_not_come_back"),
    ),
    Mutant(
        "server: too many who write keep out those who only read",
        "Many at once",
        LANES,
        (("pending = self.pending if self._company else len(queue)", "pending = self.pending"),),
        ON_SERVER.format("when_too_many_wait_for_the_store_others_are_refused_at_once"),
    ),
    Mutant(
        "server: who waits for a group is looked at more and more often",
        "P8",
        LANES,
        (
            (
                "        if any(map(len, self._company.values())):\n",
                "        for _ in filter(len, self._company.values()):\n",
            ),
        ),
        ON_SERVER.format("one_timer_looks_after_all_who_wait_for_groups"),
    ),
    Mutant(
        "server: who is asked for by himself is not there any more for those whom a group leaves",
        "P8",
        LANES,
        (("[*self._company.values(), *self._queues]", "[*self._queues, *self._company.values()]"),),
        ON_SERVER.format("what_a_group_leaves_is_answered_when_the_store_is_closed[True]"),
    ),
    Mutant(
        "postgres: what was undone in its commit is answered as done",
        "P1, Many at once",
        POSTGRES_SESSION,
        (("            must = None if must == len(todo) else must\n", ""),),
        ON_POSTGRES.format("a_commit_that_fails_is_a_failure_of_each[own]"),
    ),
    Mutant(
        "postgres: a hint that fails in its commit is a failure of what was done",
        "P6",
        POSTGRES_SESSION,
        (("            must = None if must == len(todo) else must\n", "            must = None\n"),),
        ON_POSTGRES.format("only_a_hint_may_fail_in_its_commit[own]"),
    ),
    Mutant(
        "postgres: a release makes the grants of its group lazy",
        "P1, Many at once",
        SQL_GROUPS,
        (('"lazily": not acquires', '"lazily": True'),),
        ON_POSTGRES.format("a_release_makes_no_grant_of_its_group_lazy[own]"),
    ),
    Mutant(
        "postgres: a group waits for whoever is at a row that it wants",
        "Many at once",
        POSTGRES,
        (
            (
                "FOR UPDATE SKIP LOCKED) AS l\n     WHERE k.known IS NOT NULL",
                "FOR UPDATE) AS l\n     WHERE k.known IS NOT NULL",
            ),
        ),
        ON_POSTGRES.format("what_somebody_has_locked_holds_up_nobody[own]"),
    ),
    Mutant(
        "postgres: a group waits for whoever is at a row that it frees",
        "Many at once",
        POSTGRES,
        (
            (
                "FOR NO KEY UPDATE SKIP LOCKED) AS l)\nUPDATE holdfast_locks AS l\n   SET owner = NULL",
                "FOR NO KEY UPDATE) AS l)\nUPDATE holdfast_locks AS l\n   SET owner = NULL",
            ),
        ),
        ON_POSTGRES.format("what_somebody_has_locked_holds_up_nobody[own]"),
    ),
    Mutant(
        "postgres: a group takes what is fenced",
        "P4",
        POSTGRES,
        (
            (
                "FOR UPDATE SKIP LOCKED) AS l\n     WHERE k.known IS NOT NULL",
                "FOR NO KEY UPDATE SKIP LOCKED) AS l\n     WHERE k.known IS NOT NULL",
            ),
        ),
        ON_POSTGRES.format("what_somebody_has_locked_holds_up_nobody[own]"),
    ),
    Mutant(
        "postgres: a group believes what it read before it had the row",
        "P6",
        POSTGRES,
        (("l.version = k.known AND ", ""),),
        ON_POSTGRES.format("an_attempt_that_ends_while_its_group_begins_is_not_granted[own]"),
    ),
    Mutant(
        "postgres: a group takes what is held",
        "P2",
        POSTGRES,
        (("lock_key = k.key AND owner IS NULL AND waiters = 0", "lock_key = k.key AND waiters = 0"),),
        ON_POSTGRES.format("what_needs_the_rules_is_left_to_them[own]"),
    ),
    Mutant(
        "postgres: groups make the same rows in different orders",
        "Many at once",
        POSTGRES,
        (("     ORDER BY k.key\n", ""),),
        ON_POSTGRES.format("two_groups_of_the_same_new_keys_do_not_wait_for_each_other_for_ever"),
    ),
    Mutant(
        "postgres: a group that nobody knows about is asked again in silence",
        "P6, Many at once",
        TOGETHER,
        (("isinstance(error, errors.OutcomeUnknown | errors.StoreUnavailable)", "False"),),
        ON_POSTGRES.format("if_the_line_breaks_in_the_commit_nobody_knows[own]"),
    ),
    Mutant(
        "postgres: the order of requests is lost in groups",
        "Many at once",
        TOGETHER,
        (("(not is_plain or key in group)", "key in group"),),
        ON_POSTGRES.format("the_order_of_requests_is_kept[own]"),
    ),
)
