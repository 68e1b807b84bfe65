"""Mutants do not rot: `make mutants` shows that they are caught, and this that they can still be planted."""

from __future__ import annotations

import pytest

from tests.mutants.mutants import Mutant
from tests.mutants.run import LOCAL_MUTANTS, REMOTE_MUTANTS, ROOT, plant

ALL = LOCAL_MUTANTS + REMOTE_MUTANTS


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_planted(mutant: Mutant):
    plant(mutant, ROOT / "src", write=False)


def test_mutants_have_names_of_their_own():
    assert len({mutant.name for mutant in ALL}) == len(ALL)


@pytest.mark.parametrize("mutant", [each for each in ALL if each.test], ids=lambda mutant: mutant.name)
def test_the_test_that_a_mutant_names_exists(mutant: Mutant):
    file, *_, name = mutant.test.partition("[")[0].split("::")
    suite = (ROOT / "src/holdfast/testing/conformance").glob("*.py")
    assert any(f"def {name}(" in path.read_text("utf-8") for path in (ROOT / file, *suite))
