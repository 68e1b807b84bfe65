"""Who may import whom: errors ← core ← stores ← client; server, cli. `testing` sees all, and nobody sees it.

Inside of the client: what threads and tasks share ← sync, aio. What few programs need is loaded on demand.
"""

import ast
import subprocess
import sys
from difflib import SequenceMatcher
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent

STORES = {"memory", "sqlite", "postgres", "mysql", "http"}
CLIENT = {"holdfast.client", "holdfast.Holdfast", "holdfast.AsyncHoldfast"}
LATER = (
    "instances",
    "assignments",
    "claims",
    "workload",
    "elections",
    "schedules",
    "ticks",
    "calendar",
)
OTHERS = {"holdfast.server", "holdfast.cli", "holdfast.testing"}
ABOVE_STORES = {"holdfast.identity", *OTHERS, *CLIENT}
FORBIDDEN = {
    "errors.py": {"holdfast"},
    "clock.py": {"holdfast"},
    "log.py": {"holdfast"},
    "signal_mask.py": {"holdfast"},
    "core": {"holdfast.stores", "holdfast.clock", *ABOVE_STORES},
    "stores": ABOVE_STORES,
    **{f"stores/{name}": {f"holdfast.stores.{other}" for other in STORES - {name}} for name in STORES},
    "stores/sql": {f"holdfast.stores.{name}" for name in STORES},
    "server": {"holdfast.cli", "holdfast.testing", *CLIENT},
    "cli": {"holdfast.testing"},
    "client": OTHERS,
    "client/sync": {"asyncio", "holdfast.client.aio"},
    "client/aio": {"holdfast.client.sync"},
    **{
        f"client/{file.name}": {"holdfast.client.sync", "holdfast.client.aio"}
        for file in (ROOT / "client").glob("*.py")
    },
}
SERVER_MAY = {"core", "errors", "clock", "log", "identity", "signal_mask", "server", "__version__"}
SERVER_MAY_OF_STORES = {
    "open_store",
    "address_of",
    "default_url",
    "shown",
    "base",
    "readiness",
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


def test_what_few_programs_need_is_loaded_when_it_is_used():
    """Instances, elections and schedules: `import holdfast`, and taking a lock, are not slower for them."""
    loaded = loaded_by(
        "import holdfast, holdfast.client.aio.client; holdfast.Holdfast('memory://').hold('key')"
    )
    assert [name for name in loaded if name.startswith("holdfast.client") and name.endswith(LATER)] == []


def test_threads_and_tasks_have_the_same_files():
    """A change to one has its counterpart where everybody would look for it."""
    sync, aio = ({file.name for file in (ROOT / "client" / kind).glob("*.py")} for kind in ("sync", "aio"))
    assert sync == aio


def test_threads_and_tasks_share_few_lines_by_copy():
    """What is equal in both belongs into `client/`, once. Imports, signatures and docstrings are left."""
    equal = 0
    for file in (ROOT / "client" / "sync").glob("*.py"):
        twins = (file, ROOT / "client" / "aio" / file.name)
        sync, aio = (
            list(filter(None, map(str.strip, twin.read_text("utf-8").splitlines()))) for twin in twins
        )
        blocks = SequenceMatcher(None, sync, aio, autojunk=False).get_matching_blocks()
        equal += sum(block.size for block in blocks)
    assert equal <= 450


def imported(file: Path, modules: dict[str, Path]) -> set[str]:
    """Return the modules of ours that a file imports, also inside of functions and for type checkers only."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            each = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in modules else node.module for name in each}
    return {name for name in names if name in modules and modules[name] != file}


def knots(modules: dict[str, Path]) -> list[set[str]]:
    """Return the sets of modules each of which needs all others of its set."""
    needs = {name: imported(file, modules) for name, file in modules.items()}

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        todo = [start]
        while todo:
            new = needs[todo.pop()] - found
            found |= new
            todo += new
        return found

    reach = {name: reached(name) for name in modules}
    found = [{other for other in reach[name] if name in reach[other]} for name in sorted(modules)]
    return [knot for number, knot in enumerate(found) if knot and knot not in found[:number]]


def modules_of(root: Path, package: str) -> dict[str, Path]:
    names = {
        file: ".".join((package, *file.relative_to(root).with_suffix("").parts))
        for file in root.rglob("*.py")
    }
    return {name.removesuffix(".__init__"): file for file, name in names.items()}


def test_no_modules_need_each_other():
    """Types count, too: who reads one module can put it away before opening the next."""
    assert knots(modules_of(ROOT, "holdfast")) == []


def test_a_knot_would_be_noticed(tmp_path):
    (tmp_path / "one.py").write_text("def later():\n    from ours.two import name\n")
    (tmp_path / "two.py").write_text("import ours.three\n")
    (tmp_path / "three.py").write_text("if TYPE_CHECKING:\n    from ours import one\n")
    (tmp_path / "four.py").write_text("import ours.one\n")
    assert knots(modules_of(tmp_path, "ours")) == [{"ours.one", "ours.two", "ours.three"}]


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
