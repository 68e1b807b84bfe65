"""Flaws in what a keeper asks about at once, and in what it does not renew: see `mutants`."""

from __future__ import annotations

from tests.mutants.mutant import KEEPER, Mutant

KEEPING = "keeping.py"

KEEPER_TESTS = "tests/unit/test_keeper.py::test_{}"
THREAD_TESTS = "tests/unit/test_keeper_thread.py::test_{}"

KEEPING_MUTANTS = (
    Mutant(
        "a signal that overtakes the answer of a grant is forgotten",
        "Renewing",
        KEEPER,
        (("        else:\n            self.hurried_at = now\n", ""),),
        KEEPER_TESTS.format("a_signal_that_overtakes_the_answer_of_the_grant_is_asked_about_at_once"),
    ),
    Mutant(
        "who can be told at last does not ask about what is under way",
        "Renewing",
        KEEPER,
        (("        self.hurried_at = now\n        for kept in", "        for kept in"),),
        THREAD_TESTS.format("who_can_be_told_only_now_asks_about_what_was_asked_for_before"),
    ),
    Mutant(
        "a signal during the last renewal under max_hold is forgotten",
        "Renewing",
        KEEPER,
        (
            (
                "        if kept.hurried_at >= asked:  #",
                "        if kept.renews and kept.hurried_at >= asked:  #",
            ),
        ),
        KEEPER_TESTS.format(
            "a_signal_while_the_last_renewal_is_under_way_is_asked_about_and_extends_nothing"
        ),
    ),
    Mutant(
        "a signal about a lease that is not renewed is not asked about",
        "Renewing",
        KEEPER,
        (
            (
                "if kept := self.leases.get(attempt):\n            kept.renew_at",
                "if (kept := self.leases.get(attempt)) and kept.renews:\n            kept.renew_at",
            ),
        ),
        KEEPER_TESTS.format("a_signal_about_a_lease_that_is_not_renewed_is_asked_about_at_once"),
    ),
    Mutant(
        "asking about a lease that is not renewed renews it",
        "Renewing",
        KEEPER,
        (("        if not kept.renews:\n            return 0.0\n", ""),),
        KEEPER_TESTS.format("a_lease_that_is_not_renewed_is_not_renewed_by_a_signal_either"),
    ),
    Mutant(
        "a signal is asked about twice",
        "Renewing",
        KEEPER,
        (("            kept.hurried_at = -math.inf  #", "            pass  #"),),
        KEEPER_TESTS.format("a_signal_at_the_instant_of_a_renewal_that_was_not_asked_yet_is_answered_by_it"),
    ),
    Mutant(
        "the thread renews what nobody wants renewed",
        "Renewing",
        KEEPING,
        (("max_hold=max_hold, renew=renew)", "max_hold=max_hold, renew=True)"),),
        THREAD_TESTS.format("a_signal_about_a_lease_that_is_not_renewed_is_asked_about"),
    ),
)
