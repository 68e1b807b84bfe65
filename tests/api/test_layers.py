"""Who may import whom: errors ← core ← stores ← clients ← cluster; server, cli. `testing` sees all.

Nobody sees `testing`. The clients' methods for clusters load that package when they are called.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent

STORES = {"memory", "sqlite", "postgres", "mysql", "http"}
CLIENTS = {
    "client",
    "sync",
    "sync_leases",
    "aio",
    "aio_leases",
    "leases",
    "stdlock",
    "keeping",
    "exits",
    "options",
}
CLIENTS |= {"operations", "aio_operations", "several", "aio_several", "Holdfast", "AsyncHoldfast"}
CLIENTS |= {"sync_cluster", "aio_cluster", "cluster"}
LOADED_LATER = ("cluster", "scheduling")  # above the clients, which have methods for them
CLIENTS |= {"scheduling"}
ABOVE_STORES = {f"holdfast.{name}" for name in ("identity", "server", "cli", "testing", *CLIENTS)}
FORBIDDEN = {
    "errors.py": {"holdfast"},
    "clock.py": {"holdfast"},
    "log.py": {"holdfast"},
    "core": {"holdfast.stores", "holdfast.clock", *ABOVE_STORES},
    "stores": ABOVE_STORES,
    **{f"stores/{name}": {f"holdfast.stores.{other}" for other in STORES - {name}} for name in STORES},
    "stores/sql": {f"holdfast.stores.{name}" for name in STORES},
    "server": {f"holdfast.{name}" for name in ("cli", "testing", *CLIENTS)},
    "cli": {"holdfast.testing"},
    "cluster": {"holdfast.sync", "holdfast.aio", "holdfast.server", "holdfast.cli", "holdfast.testing"},
    "cluster/sync.py": {"asyncio", "holdfast.cluster.aio"},
    "cluster/electing.py": {"asyncio", "holdfast.cluster.aio_electing"},
    "client.py": {"holdfast.sync", "holdfast.aio", "holdfast.server", "holdfast.cli", "holdfast.testing"},
    "sync.py": {"holdfast.aio", "holdfast.server", "holdfast.cli", "holdfast.testing", "asyncio"},
    "aio.py": {"holdfast.sync", "holdfast.server", "holdfast.cli", "holdfast.testing"},
}
SERVER_MAY = {"core", "errors", "clock", "log", "identity", "masking", "server", "__version__"}
SERVER_MAY_OF_STORES = {
    "open_store",
    "address_of",
    "default_url",
    "shown",
    "base",
    "opening",
}  # whichever store it is, behind its url


def imports(file: Path, *, inside_functions: bool = True) -> set[str]:
    """Return what a module imports when it runs; what only type checkers see does not count."""
    tree = ast.parse(file.read_text("utf-8"))
    for node in ast.walk(tree):
        unseen = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not inside_functions
        if unseen or later:
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


def loaded_by(statement: str) -> set[str]:
    """Return the modules that are there after *statement*, in a Python of its own."""
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("part", sorted(FORBIDDEN))
def test_a_layer_does_not_look_up(part):
    place = ROOT / part
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert files
    # A bare "holdfast" stands for anything of ours but the names that a package module must import.
    forbidden = FORBIDDEN[part]
    assert crossings(files, forbidden) == []


def test_every_store_is_among_the_layers():
    packages = {file.parent.name for file in (ROOT / "stores").glob("*/__init__.py")}
    assert packages - {"sql"} == STORES


def test_the_server_knows_no_store_by_name_and_no_client():
    """It is as one client of whatever store its url names, and works like all others: by requests."""
    strange = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in sorted((ROOT / "server").rglob("*.py"))
        for name in sorted(imports(file))
        if name.startswith("holdfast.")
        for layer, _, rest in [name.removeprefix("holdfast.").partition(".")]
        if layer not in SERVER_MAY
        and not (layer == "stores" and rest.partition(".")[0] in {"", *SERVER_MAY_OF_STORES})
    ]
    assert strange == []


def test_nothing_but_tests_imports_the_testing_kit():
    files = [f for f in ROOT.rglob("*.py") if "testing" not in f.relative_to(ROOT).parts]
    assert crossings(files, {"holdfast.testing"}) == []


def test_a_crossing_would_be_noticed(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("from holdfast.stores import memory\n")
    assert "holdfast.stores.memory" in imports(file)


def test_the_clients_load_what_is_above_them_only_when_it_is_used():
    """Then nothing below depends on it: a method passes on what it was told."""
    early = [
        f"{file.name} imports {name}"
        for file in ROOT.glob("*.py")
        for name in sorted(imports(file, inside_functions=False))
        if name.startswith(tuple(f"holdfast.{each}" for each in LOADED_LATER))
    ]
    assert early == []
    loaded = loaded_by("import holdfast, holdfast.aio; holdfast.Holdfast('memory://').hold('key')")
    assert [
        name for name in loaded if name.startswith(tuple(f"holdfast.{each}" for each in LOADED_LATER))
    ] == []


def test_importing_holdfast_loads_no_driver_and_no_event_loop():
    heavy = {"sqlite3", "asyncio", "socket", "logging", "dataclasses", "urllib.parse", "importlib.metadata"}
    heavy |= {"http.client", "ssl", "httptools", "uvloop", "holdfast.server", "holdfast.stores.http"}
    assert heavy & loaded_by("import holdfast") == set()


def test_commands_that_serve_nobody_load_no_server():
    heavy = {"httptools", "uvloop", "asyncio", "http.client", "ssl"}
    loaded = loaded_by("import holdfast.cli")
    assert {name for name in loaded if name in heavy or name.startswith("holdfast.server.http")} == set()


def test_a_client_of_a_server_needs_no_more_than_python():
    """The extra is for those who serve; those who ask install nothing."""
    loaded = loaded_by("import holdfast.stores.http")
    assert {name for name in loaded if name.partition(".")[0] in ("httptools", "uvloop", "asyncio")} == set()
    assert not any(name.startswith("holdfast.server") for name in loaded)
