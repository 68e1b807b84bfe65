"""Flaws in whose a lease is: one for each rule of ownership. See `mutant`."""

from __future__ import annotations

from proof.mutants.mutant import Mutant

OWNERSHIP = "client/ownership.py"
LEASES = "client/holdings.py"
KEEPING = "client/keeper_thread.py"

OWNERS = "tests/clients/test_ownership.py::test_{}"
INSIDE = "tests/clients/test_inside.py::test_{}"

OWNERSHIP_MUTANTS = (
    Mutant(
        "the owner is the thread or task",
        "Ownership",
        OWNERSHIP,
        ((' or f"{identity.name()}.{next(_count)}"', " or identity.name()"),),
        OWNERS.format("what_runs_later_in_the_same_thread_is_not_inside[by_futures]"),
    ),
    Mutant(
        "a block that is left elsewhere stays open",
        "Ownership",
        OWNERSHIP,
        (
            (
                "        link, self.link = self.link, None\n        if link",
                "        link = self.link\n        if link",
            ),
            ("            _innermost.set(link.outer)\n", "            self.link = None\n"),
            ("        self.task, self.calls = None, ()\n", ""),
        ),
        OWNERS.format("what_was_entered_and_is_left_in_another_thread_is_over"),
    ),
    Mutant(
        "the function of a block need not be running",
        "Ownership",
        OWNERSHIP,
        (
            (
                "                calls.setdefault(call.frame, []).append((call, scope.owner))\n",
                "                around = scope.owner\n",
            ),
        ),
        OWNERS.format("what_runs_later_in_the_same_thread_is_not_inside[by_futures]"),
    ),
    Mutant(
        "a task that begins at once is inside its parent's block",
        "Ownership",
        OWNERSHIP,
        (
            (
                "elif isinstance(scope, Block) and scope.task is task:",
                "elif isinstance(scope, Block):",
            ),
        ),
        OWNERS.format("a_task_that_another_one_runs_from_its_block_is_not_inside"),
    ),
    Mutant(
        "the scope of an owner counts after its end",
        "Ownership",
        OWNERSHIP,
        (
            (
                "scope.is_open and scope.link is self else None",
                "(isinstance(scope, OwnerScope) or scope.is_open and scope.link is self) else None",
            ),
        ),
        OWNERS.format("a_context_that_outlives_the_scope_of_an_owner_is_not_that_owner"),
    ),
    Mutant(
        "a forked child is inside",
        "Ownership",
        OWNERSHIP,
        (
            (
                "return self.link is not None and self._forks == identity.forks",
                "return self.link is not None",
            ),
        ),
        OWNERS.format("a_forked_child_is_not_inside"),
    ),
    Mutant(
        "a forked child is in the scope of an owner without a name",
        "Ownership",
        OWNERSHIP,
        (("and (self._named or self._forks == identity.forks)", "and (self._named or self._forks >= 0)"),),
        OWNERS.format("a_forked_child_is_not_inside"),
    ),
    Mutant(
        "a scope without a name is an owner that others are, too",
        "Ownership",
        OWNERSHIP,
        (("identity.new_owner(identity.program())", "identity.program()"),),
        OWNERS.format("an_owner_without_a_name_is_nobody_else"),
    ),
    Mutant(
        "taking a lock without a block makes an inside",
        "Ownership",
        LEASES,
        (
            (
                "        self.block: Block | None = None  # that it was entered as\n",
                "        self.block = None if wish.named else Block(kept.grant.owner, _depth())\n",
            ),
            (
                "class Holding:\n",
                (
                    "def _depth() -> int:\n"
                    "    import sys\n"
                    "    depth, frame = -1, sys._getframe()\n"
                    '    while frame.f_back and frame.f_globals["__name__"].startswith("holdfast"):\n'
                    "        depth, frame = depth + 1, frame.f_back\n"
                    "    return depth\n\n\n"
                    "class Holding:\n"
                ),
            ),
        ),
        OWNERS.format("taking_a_lock_without_a_block_makes_nothing_an_inside"),
    ),
    Mutant(
        "what another thread took cannot be released",
        "Ownership",
        LEASES,
        (
            (
                "        self._forks = identity.forks\n",
                "        self._forks = identity.forks\n        self.taker = identity.name()\n",
            ),
            ("    __slots__ = (\n", '    __slots__ = (\n        "taker",\n'),
            (
                "        self._notice_fork()\n        if kept.lost is not None and self._forks",
                (
                    "        if identity.name() != self.taker:\n"
                    '            raise errors.NotHeld(self.key, "another thread or task has taken it")\n'
                    "        self._notice_fork()\n        if kept.lost is not None and self._forks"
                ),
            ),
        ),
        OWNERS.format("anybody_who_has_a_lease_may_check_and_release_it[sync-memory]"),
    ),
    Mutant(
        "an owner that was given spreads to what is inside",
        "Ownership",
        "client/sync/leases.py",
        (
            (
                "            if not wish.named:\n                self._block = Block(",
                "            if wish:\n                self._block = Block(",
            ),
        ),
        OWNERS.format("code_inside_a_block_with_an_owner_is_not_that_owner"),
    ),
    Mutant(
        "what nobody has any more is not released",
        "Ownership",
        KEEPING,
        (
            (
                "            if kept is not None:  # else it was released, or lost, before it was dropped\n",
                "            if kept is not None and kept.leaving:\n",
            ),
        ),
        OWNERS.format("a_lease_that_nobody_has_is_released_with_a_warning_that_says_where_it_was_taken"),
    ),
    Mutant(
        "a leak is not warned of",
        "Ownership",
        KEEPING,
        (
            (
                "            _warn_of_leaks(dropped)\n",
                "            for key, place in dropped:\n                warn(DROPPED, repr(key), place)\n",
            ),
        ),
        OWNERS.format("a_lease_that_nobody_has_is_released_with_a_warning_that_says_where_it_was_taken"),
    ),
    Mutant(
        "those inside are not told that everything was released",
        "Ownership",
        "client/leases.py",
        (
            ("    holding.kept.lose(RELEASED_ALL)\n", ""),
            ("    holding.engine.keeper.tell(holding.kept)\n", ""),
        ),
        OWNERS.format("everything_can_be_released_at_once_and_those_inside_are_told[sync-memory]"),
    ),
    Mutant(
        "a loop that entered a block is inside of it",
        "Ownership",
        OWNERSHIP,
        (("if not _same(self.frame, self._entered_at):", "if True:"),),
        INSIDE.format("a_loop_that_enters_a_block_calls_strangers[itself-itself]"),
    ),
    Mutant(
        "calls of C code are at another place than calls of Python code",
        "Ownership",
        OWNERSHIP,
        (("return low == high or (", "return low == high or False and ("),),
        INSIDE.format("a_loop_that_enters_a_block_calls_strangers[a partial-itself]"),
    ),
    Mutant(
        "a thread in which a stack was filled is inside",
        "Ownership",
        OWNERSHIP,
        (("return self._stack is not None and", "return self._stack is not None or"),),
        INSIDE.format("a_thread_in_which_a_stack_was_filled_is_not_inside"),
    ),
    Mutant(
        "what another stack enters is inside",
        "Ownership",
        OWNERSHIP,
        (("_library(called) is self._stack()", "_library(called) is not None"),),
        INSIDE.format("a_thread_in_which_a_stack_was_filled_is_not_inside"),
    ),
    Mutant(
        "child tasks are inside the block of their parent",
        "Ownership",
        OWNERSHIP,
        (("if isinstance(scope, OwnerScope):", "if scope is not None:"),),
        OWNERS.format("a_task_enters_again_from_inside_and_its_children_do_not[a hold]"),
    ),
    Mutant(
        "a scope that was left is open where its context was copied",
        "Ownership",
        OWNERSHIP,
        ((" and scope.link is self else None", " else None"),),
        INSIDE.format("a_scope_that_is_entered_again_is_not_open_where_it_was_left"),
    ),
    Mutant(
        "blocks that were left pile up in the context",
        "Ownership",
        OWNERSHIP,
        (("link.outer = _pruned(_innermost.get())", "link.outer = _innermost.get()"),),
        INSIDE.format("blocks_that_are_left_before_those_inside_of_them_leave_nothing"),
    ),
    Mutant(
        "a warning that cannot be shown ends the keeper",
        "Ownership",
        KEEPING,
        (
            (
                "    except BaseException as error:  # noqa: BLE001 - the program",
                "    except ResourceWarning as error:  # the program",
            ),
        ),
        INSIDE.format("a_warning_that_cannot_be_shown_does_not_end_the_keeper"),
    ),
    Mutant(
        "who releases everything and is cancelled leaves the rest",
        "Ownership",
        "client/leases.py",
        (("            release_later(leases[number:])\n", ""),),
        INSIDE.format("a_task_that_releases_its_own_block_with_everything_else_leaves_nothing"),
    ),
    Mutant(
        "a thread that begins with us cannot say where",
        "Ownership",
        "client/place.py",
        (("sys._getframe(2)", "sys._getframe(3)"),),
        INSIDE.format("a_thread_or_a_greenlet_may_begin_with_a_method_of_ours"),
    ),
)
