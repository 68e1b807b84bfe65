"""Flaws in what stores do about instances and their work: see `mutant`. Each names the test to see it."""

from __future__ import annotations

from proof.mutants.databases import MYSQL, ON_MYSQL, ON_POSTGRES, POSTGRES
from proof.mutants.mutant import MEMORY_SUITE, SQL, SQLITE_SUITE, Mutant

INSTANCES = "stores/memory/instances.py"
CLAIMING = "stores/memory/work.py"
ASSIGNING = "stores/memory/work.py"
STATE = "stores/memory/state.py"
WORK = "stores/memory/work.py"
SQL_CLAIMING = "stores/sql/rules/claims.py"
SQL_INSTANCES = "stores/sql/rules/instances.py"
SQL_WORK = "stores/sql/rules/work.py"
SQL_WORK_ROW = "stores/sql/rules/work_row.py"
SQLITE_CLAIMING = "stores/sqlite/claims.py"
CLUSTER = "core/cluster.py"

CLUSTER_MUTANTS = (
    Mutant(
        "work is claimed although somebody has its lock",
        "P2, Cluster",
        WORK,
        (("if lock.holds or lock.tickets or lock.shut_until > now:", "if lock.shut_until > now:"),),
        f"{MEMORY_SUITE}::test_work_whose_lock_is_held_is_put_off_until_that_ends",
    ),
    Mutant(
        "a late copy of a claim claims",
        "P6, Cluster",
        CLAIMING,
        (("if request.number <= instance.claims:", "if request.number == instance.claims:"),),
        f"{MEMORY_SUITE}::test_a_late_copy_takes_nothing",
    ),
    Mutant(
        "a claim asked again takes more",
        "P6, Cluster",
        CLAIMING,
        (("if request.number <= instance.claims:", "if request.number < instance.claims:"),),
        f"{MEMORY_SUITE}::test_a_claim_asked_again_has_the_same_answer",
    ),
    Mutant(
        "abandoned work keeps its token",
        "P1, Cluster",
        WORK,
        (
            (
                "work.instance, work.attempt, work.token = request.id, attempt, hold.token",
                "work.instance, work.attempt, work.token = request.id, attempt, work.token or hold.token",
            ),
        ),
        f"{MEMORY_SUITE}::test_work_of_the_dead_goes_to_the_living_with_a_higher_token",
    ),
    Mutant(
        "work is finished under any token",
        "P5, Cluster",
        WORK,
        (("or hold is None or hold.token != request.token:", "or hold is None:"),),
        f"{MEMORY_SUITE}::test_the_wrong_token_or_attempt_ends_nothing",
    ),
    Mutant(
        "who finishes work ends that of another",
        "P5, Cluster",
        ASSIGNING,
        (("and (work.attempt, work.token) == (request.attempt, request.token)\n", "\n"),),
        f"{MEMORY_SUITE}::test_who_entered_the_lock_again_does_not_end_the_work",
    ),
    Mutant(
        "finishing work keeps its lock",
        "Cluster",
        WORK,
        (("            self._drop(lock, attempt, now)\n            reason", "            reason"),),
        f"{MEMORY_SUITE}::test_its_lock_is_released",
    ),
    Mutant(
        "tries are not counted",
        "Cluster",
        WORK,
        (("work.tries += 1", "work.tries += work.tries == 0"),),
        f"{MEMORY_SUITE}::test_tries_are_counted",
    ),
    Mutant(
        "what is returned was tried",
        "Cluster",
        STATE,
        (("            self.tries -= 1\n", ""),),
        f"{MEMORY_SUITE}::test_returned_it_was_not_tried",
    ),
    Mutant(
        "abandoned work is tried for ever",
        "Cluster",
        WORK,
        (("if work.max_tries and work.tries >= work.max_tries:", "if False:"),),
        f"{MEMORY_SUITE}::test_each_abandonment_is_a_try",
    ),
    Mutant(
        "a claim takes more than there is room for",
        "Cluster",
        CLAIMING,
        (("min(request.limit, capacity - assigned)", "request.limit"),),
        f"{MEMORY_SUITE}::test_never_more_than_capacity_leaves",
    ),
    Mutant(
        "the fuller take as much as the idle",
        "Cluster",
        CLUSTER,
        (("return spread * (assigned + place) // capacity", "return spread * place // capacity"),),
        f"{MEMORY_SUITE}::test_the_fuller_leave_it_to_others",
    ),
    Mutant(
        "the dead claim until somebody declares them dead",
        "Cluster",
        CLAIMING,
        (
            (
                'if instance is None or instance.seen_at(now) != "alive"',
                'if instance is None or instance.state != "alive"',
            ),
        ),
        f"{MEMORY_SUITE}::test_only_the_living_are_given_work",
    ),
    Mutant(
        "a heartbeat brings back the dead",
        "Cluster",
        INSTANCES,
        (
            ("        self._declare_dead(request.id, now)\n", ""),
            (
                'instance.seen_at(now) in ("alive", "draining"):\n            instance.client',
                'instance.state in ("alive", "draining"):\n            instance.client',
            ),
        ),
        f"{MEMORY_SUITE}::test_a_heartbeat_at_the_end_is_too_late",
    ),
    Mutant(
        "who leaves keeps its work",
        "Cluster",
        INSTANCES,
        (("                    self._return(work, now, post)\n", "                    work.due = now\n"),),
        f"{MEMORY_SUITE}::test_who_leaves_gives_back_what_it_has_at_once",
    ),
    Mutant(
        "an offer that is repeated begins anew",
        "P6, Cluster",
        CLAIMING,
        (
            (
                'known is None or (request.again and known.state in ("completed", "failed"))',
                'known is None or known.state != "assigned"',
            ),
        ),
        f"{MEMORY_SUITE}::test_to_offer_it_again_changes_nothing",
    ),
    Mutant(
        "completed work is begun once more",
        "Cluster",
        ASSIGNING,
        (
            (
                "                if not request.again:\n",
                "                if work.state == 'failed' and not request.again:\n",
            ),
        ),
        f"{MEMORY_SUITE}::test_what_has_ended_is_not_begun",
    ),
    Mutant(
        "all who wait are called for one piece of work",
        "Cluster",
        WORK,
        (("for each in waiting[:count]:", "for each in waiting:"),),
        f"{MEMORY_SUITE}::test_one_more_is_called_than_there_is_work",
    ),
    Mutant(
        "the draining are called",
        "Cluster",
        WORK,
        (
            (
                'if type in each.wants and each.seen_at(now) == "alive"',
                'if type in each.wants and each.seen_at(now) != "left"',
            ),
        ),
        f"{MEMORY_SUITE}::test_the_dead_the_draining_and_the_left_are_not_called",
    ),
    # The rules of all databases, and SQLite.
    Mutant(
        "databases: work is finished under any token",
        "P5, Cluster",
        SQL_WORK,
        (
            (
                "    if hold is None or hold.token != token:\n        return lock.why_not_held(token)\n",
                "    if hold is None:\n        return lock.why_not_held(token)\n",
            ),
        ),
        f"{SQLITE_SUITE}::test_the_wrong_token_or_attempt_ends_nothing",
    ),
    Mutant(
        "databases: who finishes work ends that of another",
        "P5, Cluster",
        SQL_WORK,
        (
            (
                'return work.state == "assigned" and (work.attempt, work.token) == (attempt, token)',
                'return work.state == "assigned"',
            ),
        ),
        f"{SQLITE_SUITE}::test_who_entered_the_lock_again_does_not_end_the_work",
    ),
    Mutant(
        "databases: work is assigned although somebody has its lock",
        "P2, Cluster",
        SQL_WORK,
        (
            (
                "if lock.holds.all or lock.tickets.count or lock.pinned or lock.is_shut:",
                "if lock.pinned or lock.is_shut:",
            ),
        ),
        f"{SQLITE_SUITE}::test_work_whose_lock_is_held_is_busy",
    ),
    Mutant(
        "databases: work whose lease has ended is believed to go on",
        "Cluster",
        SQL_CLAIMING,
        (("if attempt == work.attempt and end > now and", "if attempt == work.attempt and"),),
        f"{SQLITE_SUITE}::test_work_of_the_dead_goes_to_the_living_with_a_higher_token",
    ),
    Mutant(
        "databases: a late copy of a claim claims",
        "P6, Cluster",
        SQL_CLAIMING,
        (("if request.number <= who.claims:", "if request.number == who.claims:"),),
        f"{SQLITE_SUITE}::test_a_late_copy_takes_nothing",
    ),
    Mutant(
        "databases: abandoned work was not tried",
        "Cluster",
        SQL_WORK_ROW,
        (
            (
                "            self._go_to_the_head(run, self.due_at)\n",
                "            self.give_back(run, self.due_at)\n",
            ),
        ),
        f"{SQLITE_SUITE}::test_each_abandonment_is_a_try",
    ),
    Mutant(
        "databases: a heartbeat brings back the dead",
        "Cluster",
        SQL_INSTANCES,
        (
            (
                "    if who.seen() in LIVING:\n        who.expires_at = max(",
                "    if who.state in LIVING:\n        who.expires_at = max(",
            ),
        ),
        f"{SQLITE_SUITE}::test_a_heartbeat_at_the_end_is_too_late",
    ),
    Mutant(
        "databases: a heartbeat moves the end back",
        "Cluster",
        SQL_INSTANCES,
        (
            (
                "who.expires_at = max(who.expires_at, who.now + micros(request.ttl))",
                "who.expires_at = who.now + micros(request.ttl)",
            ),
        ),
        f"{SQLITE_SUITE}::test_a_heartbeat_never_moves_the_end_back",
    ),
    Mutant(
        "sqlite: a fast claim does not see who has the lock",
        "P2, Cluster",
        SQL,
        (
            (
                "AND l.holds = 0 AND l.notes IS NULL)\n  FROM holdfast_work AS w INDEXED BY",
                "AND l.holds = 0 AND l.notes IS NULL) OR true\n  FROM holdfast_work AS w INDEXED BY",
            ),
        ),
        f"{SQLITE_SUITE}::test_work_whose_lock_is_held_is_put_off_until_that_ends",
    ),
    Mutant(
        "sqlite: a fast claim does not look at what is due",
        "Cluster",
        SQLITE_CLAIMING,
        ((" or request.number <= last_claim or is_due:", " or request.number <= last_claim:"),),
        f"{SQLITE_SUITE}::test_work_of_the_dead_goes_to_the_living_with_a_higher_token",
    ),
    Mutant(
        "sqlite: the token of a fast claim is the time",
        "P1, Cluster",
        SQLITE_CLAIMING,
        (("token = max((floor if last is None else last) + 1, now)", "token = now"),),
        f"{SQLITE_SUITE}::test_tokens_grow_from_assignment_to_assignment",
    ),
    Mutant(
        "sqlite: a repeated offer begins anew what has ended",
        "P6, Cluster",
        SQL,
        ((" WHERE :again AND w.state IN", " WHERE w.state IN"),),
        f"{SQLITE_SUITE}::test_what_has_ended_stays_so_unless_it_is_offered_again",
    ),
)

CLUSTER_MUTANTS_ON_SERVERS = (
    Mutant(
        "postgres: a fast claim takes what somebody has locked",
        "P2, Cluster",
        POSTGRES,
        (("                        WHERE NOT l.free)\n", "                        WHERE false)\n"),),
        ON_POSTGRES.format("work_whose_lock_is_held_is_put_off_until_that_ends"),
    ),
    Mutant(
        "postgres: a late copy of a claim claims",
        "P6, Cluster",
        POSTGRES,
        ((" THEN i.expires_at > t.now END AND i.claims < :number\n", " THEN i.expires_at > t.now END\n"),),
        ON_POSTGRES.format("a_late_copy_takes_nothing"),
    ),
    Mutant(
        "postgres: a fast claim counts nothing",
        "Cluster",
        POSTGRES,
        (
            (
                "ELSE (SELECT count(*) FROM holdfast_work WHERE instance = :id AND state = 'assigned') END",
                "ELSE 0 END",
            ),
        ),
        ON_POSTGRES.format("never_more_than_capacity_leaves"),
    ),
    Mutant(
        "postgres: a fast claim holds nothing back",
        "Cluster",
        POSTGRES,
        (
            (
                "       AND t.now - p.due_at >= :spread::bigint * (i.had + p.place) / i.capacity),",
                "       AND t.now - p.due_at >= 0 * :spread::bigint),",
            ),
        ),
        ON_POSTGRES.format("a_place_is_held_back_for_its_share"),
    ),
    Mutant(
        "mysql: the dead claim",
        "Cluster",
        MYSQL,
        (
            (
                " WHERE i.id = :id AND i.state = 'alive' AND i.claims < :number\n   AND i.expires_at > ",
                " WHERE i.id = :id AND i.state = 'alive' AND i.claims < :number\n   AND 0 < ",
            ),
        ),
        ON_MYSQL.format("only_the_living_are_given_work"),
    ),
    Mutant(
        "mysql: a fast claim takes what somebody has",
        "P2, Cluster",
        MYSQL,
        (("IF(l.token > 0 AND l.owner IS NULL AND l.waiters = 0 AND l.holds = 0", "IF(l.token > 0"),),
        ON_MYSQL.format("a_lock_that_is_entered_again_keeps_its_work_waiting"),
    ),
    Mutant(
        "mysql: tries are not counted",
        "Cluster",
        MYSQL,
        (("token = :at, tries = tries + 1, claim = :number", "token = :at, claim = :number"),),
        ON_MYSQL.format("tries_are_counted"),
    ),
)
