"""Flaws that histories under faults have found in holdfast itself, planted again: see `mutants`."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.servers import MYSQL_ROWS

FORKING = "tests/faults/test_forking.py::test_{}"

FOUND_MUTANTS = (
    Mutant(
        "a forked child has what its parent is just releasing",
        "P2, Losing",
        "leases.py",
        (("if self._forks != identity.forks:\n            self._kept", "if False:\n            self._kept"),),
        FORKING.format("a_lease_that_is_being_released_is_not_the_childs_either"),
    ),
    Mutant(
        "a forked child releases what its parent has lost",
        "P2, Losing",
        "leases.py",
        (("if kept.lost is not None and self._forks != identity.forks:", "if False:"),),
        FORKING.format("a_lease_that_was_lost_before_is_not_released_by_the_child"),
    ),
    Mutant(
        "a ticket that is written is called not written",
        "P6, Waiting",
        "stores/sql/deadlock.py",
        (("raise errors.OutcomeUnknown(str(error)) from error", "raise"),),
        "tests/clients/test_waiting.py::test_who_gives_up_after_trouble_leaves_no_ticket[sync-sqlite]",
    ),
)

FOUND_MUTANTS_ON_SERVERS = (
    Mutant(
        "mysql: every listener sleeps",
        "Waking",
        "stores/mysql/signals.py",
        (("first = False  # of all", "first = True  # of all"),),
        "tests/conformance/test_mysql_signals.py"
        "::test_only_one_listener_sleeps_and_when_it_leaves_another_one_does",
    ),
    Mutant(
        "mysql: a trigger on the table hides the token",
        "P4",
        "stores/mysql/store.py",
        (("if rows and not rows[0][0]:", "if False:"),),
        MYSQL_ROWS.format("a_trigger_on_the_table_does_not_hide_the_token"),
    ),
    Mutant(
        "mysql: who cannot ask for its token is told that nothing was taken",
        "P6",
        "stores/mysql/store.py",
        (("raise errors.OutcomeUnknown(str(error)) from error\n    return rows", "raise\n    return rows"),),
        MYSQL_ROWS.format("who_cannot_ask_for_the_hidden_token_is_not_told_that_nothing_was_taken"),
    ),
)
