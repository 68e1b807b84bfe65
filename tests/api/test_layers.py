"""Who may import whom: errors ← core ← stores ← clients ← cli; `testing` sees all, and nobody sees it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent

CLIENTS = {"holdfast.client", "holdfast.sync", "holdfast.aio", "holdfast.stdlock", "holdfast.keeping"}
CLIENTS |= {"holdfast.exits", "holdfast.identity", "holdfast.options", "holdfast.cli"}
FORBIDDEN = {
    "errors.py": {"holdfast"},
    "clock.py": {"holdfast"},
    "log.py": {"holdfast"},
    "core": {"holdfast.stores", "holdfast.clock", "holdfast.testing", *CLIENTS},
    "stores": {"holdfast.testing", *CLIENTS},
    "stores/memory": {"holdfast.stores.sqlite"},
    "stores/sqlite": {"holdfast.stores.memory"},
    "cli": {"holdfast.testing"},
    "client.py": {"holdfast.sync", "holdfast.aio", "holdfast.cli", "holdfast.testing"},
    "sync.py": {"holdfast.aio", "holdfast.cli", "holdfast.testing", "asyncio"},
    "aio.py": {"holdfast.sync", "holdfast.cli", "holdfast.testing"},
}


def imports(file: Path) -> set[str]:
    """Return what a module imports when it runs; what only type checkers see does not count."""
    tree = ast.parse(file.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def crossings(files: list[Path], forbidden: set[str]) -> list[str]:
    return [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in sorted(imports(file))
        if any(name == each or name.startswith(f"{each}.") for each in forbidden)
    ]


@pytest.mark.parametrize("part", FORBIDDEN)
def test_a_layer_does_not_look_up(part):
    place = ROOT / part
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert files
    # A bare "holdfast" stands for anything of ours but the names that a package module must import.
    forbidden = FORBIDDEN[part]
    assert crossings(files, forbidden) == []


def test_nothing_but_tests_imports_the_testing_kit():
    files = [f for f in ROOT.rglob("*.py") if "testing" not in f.relative_to(ROOT).parts]
    assert crossings(files, {"holdfast.testing"}) == []


def test_a_crossing_would_be_noticed(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("from holdfast.stores import memory\n")
    assert "holdfast.stores.memory" in imports(file)


def test_importing_holdfast_loads_no_driver_and_no_event_loop():
    code = "import sys, holdfast; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"sqlite3", "asyncio", "socket", "logging", "dataclasses", "urllib.parse", "importlib.metadata"}
    assert heavy & set(loaded.stdout.split()) == set()
