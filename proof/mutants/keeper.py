"""Flaws in what a keeper asks about at once, and in what it does not renew: see `mutant`."""

from __future__ import annotations

from proof.mutants.mutant import KEEPER, PLANS, Mutant

KEEPING = "client/keeper_thread.py"

KEEPER_TESTS = "tests/unit/test_keeper.py::test_{}"
THREAD_TESTS = "tests/unit/test_keeper_thread.py::test_{}"
INTERRUPTS = "tests/clients/test_interrupts.py::test_{}"
PURSUING = "tests/clients/test_pursuing.py::test_{}"

KEEPER_MUTANTS = (
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
        (("max_hold=max_hold, renew=renew, asked=asked)", "max_hold=max_hold, renew=True, asked=asked)"),),
        THREAD_TESTS.format("a_signal_about_a_lease_that_is_not_renewed_is_asked_about"),
    ),
    Mutant(
        "a refresh that failed is tried again whenever the backoff says",
        "Waiting, P7",
        "core/settings.py",
        (
            (
                "return min(settings.backoff.delay(failures, roll), settings.heartbeat)",
                "return settings.backoff.delay(failures, roll)",
            ),
        ),
        KEEPER_TESTS.format("a_refresh_that_failed_is_tried_again_within_a_heartbeat"),
    ),
    Mutant(
        "whoever may be in a queue asks again whenever the backoff says",
        "Waiting, P7",
        PLANS,
        (
            (
                "pause_in_queue(settings, failures, roll())",
                "settings.backoff.delay(failures, roll())",
            ),
        ),
        "tests/unit/test_plans_acquire.py::test_who_may_be_in_a_queue_asks_again_within_a_heartbeat",
    ),
    Mutant(
        "a lease that nobody can reach is renewed",
        "A lease that nobody can reach",
        KEEPING,
        (("kept.tell = leash.tell\n", "pass\n"),),
        INTERRUPTS.format("a_lease_that_nobody_has_is_given_back"),
    ),
    Mutant(
        "a lease that is not renewed is given back when nobody has it",
        "A lease that nobody can reach",
        KEEPING,
        (
            (
                "        if kept.renews:\n            kept.tell",
                "        if True:\n            kept.tell",
            ),
        ),
        INTERRUPTS.format("a_lease_that_is_not_renewed_needs_nobody_who_has_it"),
    ),
    Mutant(
        "something is called between the grant and its caller",
        "Undo",
        "client/sync/leases.py",
        (
            (
                "return engine.obtain(wish, Lease, within)  # type",
                "return (lambda it: it)(engine.obtain(wish, Lease, within))  # type",
            ),
        ),
        INTERRUPTS.format("an_acquire_that_is_interrupted_anywhere_leaves_nothing"),
    ),
    Mutant(
        "an interrupt while the keeper is woken makes it miss the next call",
        "Renewing",
        KEEPING,
        (
            (
                "        elif when < self._wake_at:\n            self._changed.notify_all()",
                "        elif when < self._wake_at:\n            self._changed.notify()",
            ),
        ),
        INTERRUPTS.format("an_interrupt_while_the_keeper_is_woken_does_not_put_it_to_sleep_for_ever"),
    ),
    Mutant(
        "a release that failed is not pursued",
        "Undo",
        "client/holdings.py",
        (
            (
                "        except errors.StoreError as error:\n            self.pursue()\n",
                "        except errors.StoreError as error:\n",
            ),
        ),
        PURSUING.format("a_release_that_fails_is_pursued"),
    ),
    Mutant(
        "a withdrawal that failed is not pursued",
        "Undo",
        "client/engine.py",
        (
            (
                "            self.keeper.pursue(request, running.asked.lasts)\n",
                "            pass\n",
            ),
        ),
        PURSUING.format("a_ticket_that_cannot_be_withdrawn_is_pursued"),
    ),
    Mutant(
        "a release that is cancelled in vain is not pursued",
        "Undo",
        "client/holdings.py",
        (("            if abandoned.in_vain:\n                self.pursue()\n", ""),),
        PURSUING.format("a_cancelled_acquire_and_a_cancelled_release_are_pursued"),
    ),
    Mutant(
        "what cannot be given back keeps the others",
        "Undo",
        KEEPER,
        (
            (
                "tried.next_at = now + self.settings.backoff.delay(tried.failures, self.roll())",
                "self._pause_until = now + self.settings.backoff.delay(tried.failures, self.roll())",
            ),
        ),
        KEEPER_TESTS.format("what_cannot_be_given_back_does_not_keep_the_others"),
    ),
    Mutant(
        "who is refused in a transaction waits for it",
        "Undo",
        "client/engine.py",
        (("if running.within is not None and isinstance(step, Withdraw):", "if False:"),),
        PURSUING.format("who_is_refused_in_a_transaction_does_not_wait_for_it"),
    ),
    Mutant(
        "one locked row keeps what a closing client gives back",
        "Undo",
        "client/engine.py",
        (
            (
                "            if trouble is not None and boot_time() >= until:",
                "            if trouble is not None:",
            ),
        ),
        PURSUING.format("closing_gives_back_what_it_can_besides_what_is_locked"),
    ),
    Mutant(
        "who drops what a transaction was to release is warned",
        "A lease that nobody can reach",
        KEEPING,
        (("                if not kept.leaving:  #", "                if kept:  #"),),
        PURSUING.format("a_lease_that_a_transaction_was_to_release_may_be_dropped_without_a_word"),
    ),
    Mutant(
        "what is given back may cost a lease that ends soon",
        "Renewing",
        KEEPER,
        (("kept.renews and kept.trusted_until < now + LONGEST_WAIT", "False"),),
        KEEPER_TESTS.format("nothing_is_given_back_while_a_lease_that_is_renewed_ends_soon"),
    ),
    Mutant(
        "a keeper ends with the logging of its program",
        "Renewing",
        "log.py",
        (("    with suppress(Exception):\n", "    if True:\n"),),
        PURSUING.format("logging_that_fails_does_not_end_the_keeper"),
    ),
    Mutant(
        "who is interrupted while the store fails is not pursued",
        "Undo",
        "client/sync/engine.py",
        (
            (
                "except errors.StoreError:\n            self.keeper.pursue(withdraw, lasts)\n",
                "except errors.StoreError:\n            pass\n",
            ),
        ),
        PURSUING.format("who_is_interrupted_while_the_store_fails_leaves_nothing"),
    ),
    Mutant(
        "a lease of tasks that nobody can reach is renewed",
        "A lease that nobody can reach",
        "client/aio/engine.py",
        (("            self.keeper.keep_for(kept, lease, wish)\n", ""),),
        INTERRUPTS.format("a_lease_of_tasks_that_nobody_has_is_given_back"),
    ),
    Mutant(
        "a loop that is interrupted behind a grant renews it",
        "Undo",
        "client/aio/engine.py",
        (("            self.keeper.pursue(Withdraw(grant.key, grant.attempt), grant.ttl)\n", ""),),
        INTERRUPTS.format(
            "a_loop_that_is_interrupted_anywhere_renews_nothing_that_nobody_has[calls-acquire]"
        ),
    ),
    Mutant(
        "a loop keeps the lease that it watches",
        "A lease that nobody can reach",
        "client/aio/leases.py",
        (("0.001), _watch, weakref.ref(self))", "0.001), self.watch)"),),
        INTERRUPTS.format("a_loop_that_is_interrupted_anywhere_renews_nothing_that_nobody_has[calls-hold]"),
    ),
    Mutant(
        "a lock looks for its lease in a list that changes",
        "Owners",
        "client/sync/stdlock.py",
        (
            (
                "self._last([each for each in self._leases if not holding_of(each[1]).released])",
                "self._last(self._leases)",
            ),
        ),
        "tests/clients/test_taking.py::test_a_lock_is_released_while_others_come_and_go",
    ),
)
