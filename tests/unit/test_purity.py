"""The core decides and never acts: it imports nothing that waits, looks at the world or rolls dice."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast.core
from holdfast.testing.conformance import StoreConformance

CORE = Path(holdfast.core.__file__).parent
ALLOWED = {
    "__future__",
    "collections",
    "contextlib",
    "datetime",
    "functools",
    "heapq",
    "json",
    "math",
    "operator",
    "re",
}
ALLOWED |= {"typing", "urllib"}  # of the latter only .parse, which looks at nothing but its arguments


def imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("file", sorted(CORE.glob("*.py")), ids=lambda file: file.name)
def test_the_core_imports_only_what_is_pure(file):
    for name in imported(file):
        pure = name.split(".")[0] in ALLOWED
        assert pure or name in ("holdfast", "holdfast.errors") or name.startswith("holdfast.core"), name


def test_holdfast_does_not_import_its_testing_kit():
    code = (
        "import sys, holdfast, holdfast.stores.memory, holdfast.stores.sqlite\n"
        "assert not {'pytest', 'holdfast.testing', '_pytest'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_test_of_the_conformance_suite_hides_another():
    """The suite is put together from mixins: two tests of one name would be one test."""
    names = [name for mixin in StoreConformance.__bases__ for name in vars(mixin) if name.startswith("test_")]
    assert len(names) == len(set(names))
    assert len(names) > 200
