"""Flaws in what the command line does with leases, processes and rights: see `mutant`."""

from __future__ import annotations

from proof.mutants.mutant import Mutant

EVERY = "tests/e2e/test_cli_every.py::test_{}"
CONTAINERS = "tests/e2e/test_cli_containers.py::test_{}"
RIGHTS = "tests/e2e/test_cli_rights.py::test_{}"
GUARDING = "cli/leased_command.py"

SHELL_MUTANTS = (
    Mutant(
        "every: a run that a signal has ended counts as done",
        "Cluster",
        "cli/every.py",
        (("self.gives_back = bool(self._told and outcome.code)", "self.gives_back = False"),),
        EVERY.format("a_signal_is_passed_on_and_the_tick_goes_to_another_node[15]"),
    ),
    Mutant(
        "every: what was done when a signal came is done again",
        "Cluster",
        "cli/every.py",
        (("bool(self._told and outcome.code)", "bool(self._told)"),),
        EVERY.format("a_run_that_ends_well_after_a_signal_is_done"),
    ),
    Mutant(
        "every: a command may live until others go on",
        "P1, Cluster",
        GUARDING,
        (("left = min(left, self._started + self._timing.longest - boot_time())", "pass"),),
        EVERY.format("a_command_is_stopped_before_at_most_is_over"),
    ),
    Mutant(
        "process 1 reaps what somebody waits for",
        "Losing",
        "cli/orphans.py",
        (("if pid not in _ours:", "if True:"),),
        CONTAINERS.format("what_somebody_waits_for_is_not_reaped_by_another"),
    ),
    Mutant(
        "a wrong password is tried again and again",
        "What a client does",
        "stores/readiness.py",
        (("errors.OutcomeUnknown)", "errors.OutcomeUnknown, errors.StoreMisconfigured)"),),
        "tests/unit/test_readiness.py::test_what_only_we_can_correct_is_not_waited_for",
    ),
)

SHELL_MUTANTS_ON_SERVERS = (
    Mutant(
        "mysql: a misspelt account is made, without a password",
        "Access",
        "stores/mysql/schema.py",
        (("sql_mode = 'NO_AUTO_CREATE_USER'", "sql_mode = ''"),),
        RIGHTS.format("an_account_that_is_misspelt_is_not_made"),
    ),
)
