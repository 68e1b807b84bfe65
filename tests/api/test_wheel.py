"""What users install is the product: the tools of its tests stay in the repository."""

from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.api.test_layers import ROOT, crossings

REPOSITORY = Path(__file__).parents[2]
TOOLS = {"simulation", "explorer", "histories", "checkers", "faults", "mutants", "proof", "tests"}


@pytest.fixture(scope="module")
def installed() -> set[str]:
    """Return the paths in the wheel, as hatchling would put them there."""
    files = WheelBuilder(str(REPOSITORY)).recurse_included_files()
    return {file.distribution_path for file in files}


def test_the_wheel_has_the_product_and_nothing_else(installed):
    assert {path.partition("/")[0] for path in installed} == {"holdfast"}
    assert {
        "holdfast/__init__.py",
        "holdfast/py.typed",
        "holdfast/testing/conformance/__init__.py",
    } <= installed


def test_the_wheel_has_none_of_the_tests_tools(installed):
    assert (REPOSITORY / "proof/simulation").is_dir()
    words = {word.removesuffix(".py") for path in installed for word in path.split("/")}
    assert words & TOOLS == set()


def test_what_is_installed_does_not_need_the_tests_tools():
    assert crossings(sorted(ROOT.rglob("*.py")), {"proof", "tests"}) == []
