"""Flaws in whose a lock is when nobody says, and in what is left of blocks: see `mutants`."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

OWNERSHIP = "ownership.py"

OWNING = "tests/clients/test_ownership.py::test_{}"
INSIDE = "tests/clients/test_inside.py::test_{}"

OWNERS_MUTANTS = (
    Mutant(
        "a loop that entered a block is inside of it",
        "P2, Owners",
        OWNERSHIP,
        (("if not _same(self.frame, self._entered_at):", "if True:"),),
        INSIDE.format("a_loop_that_enters_a_block_calls_strangers[itself-itself]"),
    ),
    Mutant(
        "calls of C code are at another place than calls of Python code",
        "P2, Owners",
        OWNERSHIP,
        (("return low == high or (", "return low == high or False and ("),),
        INSIDE.format("a_loop_that_enters_a_block_calls_strangers[a partial-itself]"),
    ),
    Mutant(
        "a thread in which a stack was filled is inside",
        "P2, Owners",
        OWNERSHIP,
        (("return self._stack is not None and", "return self._stack is not None or"),),
        INSIDE.format("a_thread_in_which_a_stack_was_filled_is_not_inside"),
    ),
    Mutant(
        "what another stack enters is inside",
        "P2, Owners",
        OWNERSHIP,
        (("_library(called) is self._stack()", "_library(called) is not None"),),
        INSIDE.format("a_thread_in_which_a_stack_was_filled_is_not_inside"),
    ),
    Mutant(
        "child tasks are inside the block of their parent",
        "P2, Owners",
        OWNERSHIP,
        (("if isinstance(scope, OwnerScope):", "if scope is not None:"),),
        OWNING.format("a_task_enters_again_from_inside_and_its_children_do_not[a hold]"),
    ),
    Mutant(
        "a scope that was left is open where its context was copied",
        "P2, Owners",
        OWNERSHIP,
        ((" and scope._link is self else None", " else None"),),
        INSIDE.format("a_scope_that_is_entered_again_is_not_open_where_it_was_left"),
    ),
    Mutant(
        "blocks that were left pile up in the context",
        "Owners",
        OWNERSHIP,
        (("link.outer = _pruned(_innermost.get())", "link.outer = _innermost.get()"),),
        INSIDE.format("blocks_that_are_left_before_those_inside_of_them_leave_nothing"),
    ),
    Mutant(
        "a warning that cannot be shown ends the keeper",
        "Renewing",
        "keeping.py",
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
        "Undo",
        "aio.py",
        (("                self._release_later(leases[number:])\n", ""),),
        INSIDE.format("a_task_that_releases_its_own_block_with_everything_else_leaves_nothing"),
    ),
    Mutant(
        "a thread that begins with us cannot say where",
        "Owners",
        "place.py",
        (("sys._getframe(2)", "sys._getframe(3)"),),
        INSIDE.format("a_thread_or_a_greenlet_may_begin_with_a_method_of_ours"),
    ),
)
