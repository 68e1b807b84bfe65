"""Flaws in what SQLite does by few statements: joining, handing over, and what is answered at once."""

from __future__ import annotations

from proof.mutants.mutant import SQL, Mutant

AT_ONCE = "stores/sqlite/at_once.py"
DATABASE = "stores/sqlite/database.py"
DIALECT = "stores/sqlite/dialect.py"
SESSIONS = "stores/sqlite/sessions.py"

LAST = "AND last_attempt IS NOT :attempt\n"  # in what joins the queue of a plain lock
ENDED = "holdfast_ended WHERE lock_key = :key AND attempt = :attempt AND until_at > :clock"
JOINED = "RETURNING :clock, next_ticket - 1, waiters, owner, host, pid,"
DELETED = '                run("delete_ticket", key=key, number=number)\n'

JOINING = "tests/conformance/test_sqlite_hand_over.py::test_joining_does_what_the_rules_do[{}]"
HANDING = "tests/conformance/test_sqlite_hand_over.py::test_handing_over_does_what_the_rules_do[{}-options0]"
JOINING_PERMITS = (
    "tests/conformance/test_sqlite_hand_over.py::test_joining_a_semaphore_does_what_the_rules_do[{}]"
)
PASSING = (
    "tests/conformance/test_sqlite_hand_over.py::test_releasing_a_permit_does_what_the_rules_do[{}-options0]"
)
TELLING = "tests/conformance/test_sqlite_hand_over.py::test_the_winner_is_told_{}"
ANSWERING = "tests/conformance/test_sqlite_at_once.py::test_{}"

SQLITE_MUTANTS = (
    Mutant(
        "sqlite: who is concerned is told of what was undone as a whole",
        "Entering by the hand-over, P1",
        SESSIONS,
        (("            del afterwards[before:]\n", ""),),
        "tests/conformance/test_sqlite_hand_over.py::test_what_is_undone_as_a_whole_is_told_to_nobody[sweep]",
    ),
    Mutant(
        "sqlite: what is answered at once lets no other task in",
        "Invariants of the client",
        "client/aio/engine.py",
        (("                await asyncio.sleep(0)\n", "                pass\n"),),
        ANSWERING.format("other_tasks_have_their_turn_among_what_is_answered_at_once"),
    ),
    Mutant(
        "sqlite: who joins fast does not see that the lease is over",
        "Queue and hand-over, P8",
        SQL,
        (
            (
                "   AND expires_at > :clock AND last_attempt IS NOT :attempt\n",
                "   AND last_attempt IS NOT :attempt\n",
            ),
        ),
        JOINING.format("expired"),
    ),
    Mutant(
        "sqlite: who joins fast queues for its own lock",
        "Queue and hand-over",
        SQL,
        (("AND owner <> :owner AND attempt <> :attempt", "AND attempt <> :attempt"),),
        JOINING.format("held_by_the_same_owner"),
    ),
    Mutant(
        "sqlite: a late copy of a request that was withdrawn joins fast",
        "Queue and hand-over, P6",
        SQL,
        ((f"{LAST}   AND NOT EXISTS (SELECT 1 FROM {ENDED})\n", LAST),),
        JOINING.format("withdrawn"),
    ),
    Mutant(
        "sqlite: who joins fast passes by a dead head",
        "Queue and hand-over",
        SQL,
        (
            (
                f"ORDER BY number LIMIT 1) > :clock, 1)\n{JOINED} token",
                f"ORDER BY number LIMIT 1) > 0, 1)\n{JOINED} token",
            ),
        ),
        JOINING.format("a_dead_head"),
    ),
    Mutant(
        "sqlite: who joins fast is not looked at for circles",
        "Deadlocks",
        DIALECT,
        (
            (
                "claimed, end, is_waited_for = row\n",
                "claimed, end, _ = row\n                is_waited_for = 0\n",
            ),
        ),
        JOINING.format("waited_for"),
    ),
    Mutant(
        "sqlite: a fast hand-over goes to a dead ticket",
        "Queue and hand-over, P8",
        SQL,
        (("   AND one.terms IS NULL AND one.expires_at > t.now\n", "   AND one.terms IS NULL\n"),),
        HANDING.format("the head is dead"),
    ),
    Mutant(
        "sqlite: a fast hand-over leaves a dead ticket at the head",
        "Queue and hand-over",
        SQL,
        (("AND (two.expires_at <= t.now OR two.claim > one.claim)", "AND two.claim > one.claim"),),
        HANDING.format("the second is dead"),
    ),
    Mutant(
        "sqlite: a fast hand-over does not tell the next head how long it has to wait",
        "Queue and hand-over, P8",
        SQL,
        (("AND (two.expires_at <= t.now OR two.claim > one.claim)", "AND two.expires_at <= t.now"),),
        HANDING.format("the second has longer to claim"),
    ),
    Mutant(
        "sqlite: a fast hand-over takes all terms for plain ones",
        "Queue and hand-over",
        SQL,
        (("   AND one.terms IS NULL AND one.expires_at > t.now\n", "   AND one.expires_at > t.now\n"),),
        HANDING.format("the head reads"),
    ),
    Mutant(
        "sqlite: a lease that is over is handed over as if it were alive",
        "Queue and hand-over",
        SQL,
        (("   AND l.expires_at > t.now\n   AND one.lock_key", "   AND one.lock_key"),),
        HANDING.format("it has expired"),
    ),
    Mutant(
        "sqlite: who joins a semaphore fast does not see that a permit is free",
        "Terms, P8",
        SQL,
        (("AND notes = :full_notes AND last_attempt", "AND last_attempt"),),
        JOINING_PERMITS.format("two have left-one"),
    ),
    Mutant(
        "sqlite: who joins a semaphore fast does not see that a lease is over",
        "Terms, P8",
        SQL,
        (("(SELECT min(expires_at) FROM holdfast_holds WHERE lock_key = :key) > :clock\n", "true\n"),),
        JOINING_PERMITS.format("the first has expired-one"),
    ),
    Mutant(
        "sqlite: a permit is passed on while one that was held for two is counted as one",
        "Terms, P2",
        SQL,
        (("(h.terms IS NOT l.notes OR h.expires_at <= t.now)", "h.expires_at <= t.now"),),
        PASSING.format("as many as holds-a-2"),
    ),
    Mutant(
        "sqlite: a permit is passed on to one who needs two",
        "Terms, P2",
        SQL,
        (("   AND one.terms = l.notes AND one.expires_at > t.now\n", "   AND one.expires_at > t.now\n"),),
        PASSING.format("the head wants two-a-1"),
    ),
    Mutant(
        "sqlite: a permit is passed on to a dead ticket",
        "Terms, P8",
        SQL,
        (("   AND one.terms = l.notes AND one.expires_at > t.now\n", "   AND one.terms = l.notes\n"),),
        PASSING.format("the head is dead-a-1"),
    ),
    Mutant(
        "sqlite: an attempt whose permit was passed on is not remembered as ended",
        "Terms, P6",
        DIALECT,
        (('                run("write_ended", key=key, attempt=ours, **ended)\n', ""),),
        PASSING.format("full-a-1"),
    ),
    Mutant(
        "sqlite: a fast hand-over counts as claimed",
        "Queue and hand-over",
        SQL,
        (
            (
                "owner = :owner, attempt = :attempt, claimed = 0, last_attempt",
                "owner = :owner, attempt = :attempt, claimed = 1, last_attempt",
            ),
        ),
        HANDING.format("one waits"),
    ),
    Mutant(
        "sqlite: a fast hand-over does not keep whose release it was",
        "Queue and hand-over, P6",
        SQL,
        (("claimed = 0, last_attempt = attempt, granted_at", "claimed = 0, granted_at"),),
        HANDING.format("one waits"),
    ),
    Mutant(
        "sqlite: the winner of a fast hand-over keeps its ticket",
        "Queue and hand-over",
        DIALECT,
        (
            (
                f"**lease, **place)\n{DELETED}                return",
                "**lease, **place)\n                return",
            ),
        ),
        HANDING.format("two wait"),
    ),
    Mutant(
        "sqlite: the winner is told before the commit",
        "Queue and hand-over, P8",
        DIALECT,
        (
            (
                "                return [(owner, instance, attempt, token, now, claim)]\n",
                (
                    "                won = [(owner, instance, attempt, token, now, claim)]\n"
                    "                self._handed(key, won)\n"
                    "                for work in self.sessions._afterwards:\n"
                    "                    work()\n"
                    "                return won\n"
                ),
            ),
        ),
        TELLING.format("after_the_commit"),
    ),
    Mutant(
        "sqlite: who answers at once waits for its turn",
        "Queue and hand-over",
        AT_ONCE,
        (("self.database.try_fetch(", "self.database.fetch("),),
        ANSWERING.format("who_writes_is_not_waited_for"),
    ),
    Mutant(
        "sqlite: who answers at once checkpoints the log",
        "Queue and hand-over",
        SESSIONS,
        (("file=self.database.file, checkpoint=0, **how", "file=self.database.file, **how"),),
        ANSWERING.format("no_checkpoint_is_made"),
    ),
    Mutant(
        "sqlite: nobody checkpoints what is answered at once",
        "Queue and hand-over",
        AT_ONCE,
        (("            self._left -= 1\n", ""),),
        ANSWERING.format("a_request_is_left_to_others_now_and_then_who_see_to_the_log"),
    ),
    Mutant(
        "sqlite: who answers at once goes on in a file that was replaced",
        "Queue and hand-over",
        DATABASE,
        (
            (
                "        self.check()\n        return rows\n\n    def read(",
                "        return rows\n\n    def read(",
            ),
        ),
        ANSWERING.format("a_file_that_was_replaced_is_noticed"),
    ),
    Mutant(
        "sqlite: a fork leaves a connection open",
        "Queue and hand-over",
        SESSIONS,
        (
            (
                "        for resting in (self, self.reader, self.at_once):",
                "        for resting in (self, self.reader):",
            ),
        ),
        ANSWERING.format("a_fork_leaves_no_connection_open"),
    ),
)
