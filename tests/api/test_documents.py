"""Documents that cannot rot: their code runs, they name everything there is, they give nothing away."""

import ast
import builtins
import re
import subprocess
import sys
from codeop import compile_command
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.core.wire import ROUTES
from holdfast.server.settings import Limits, ServerSettings
from holdfast.stores.sql.options import split_url
from tests.servers.lock_server import LockServer

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
TEXTS = {".py", ".md", ".sql", ".toml", ".svg", ".js", ".css", ".html", ".service", ".conf", ""}
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"(?:<!-- run( on [a-z ]+)? -->\n)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What a block says it runs on → the store, and the address in it, but for its scheme.
ON = {
    " on postgres": ("postgres", "//app@db.internal/app"),
    " on mariadb": ("mariadb", "//app:secret@db.internal/app"),
    " on a lock server": ("http-sqlite", "//127.0.0.1:7373"),
}


def blocks(page: Path) -> list[tuple[str, str | None, bool]]:
    """Return the Python of a page: the code, what it runs on if it needs a server, and whether it is run."""
    found = BLOCK.finditer(page.read_text("utf-8"))
    return [(block[2], block[1], block[0].startswith("<!--")) for block in found]


BLOCKS = [
    pytest.param(code, runs and not on, id=f"{page.relative_to(ROOT)}:{number}")
    for page in PAGES
    for number, (code, on, runs) in enumerate(blocks(page), 1)
]
ON_SERVERS = [
    pytest.param(code, *ON[on], id=f"{page.relative_to(ROOT)}:{number}")
    for page in PAGES
    for number, (code, on, _) in enumerate(blocks(page), 1)
    if on
]
TRIED_FIRST = ("README.md", "README.zh-CN.md", "docs/quickstart.md")


def run(args: list[str], where: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", *args], cwd=where, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("code", "runs"), BLOCKS)
def test_code_in_the_documents_works(code, runs, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    compile(code, "block", "exec", flags=0x2000)  # PyCF_ALLOW_TOP_LEVEL_AWAIT
    if runs:
        run(["-c", code], tmp_path)


@pytest.mark.parametrize(("code", "store", "address"), ON_SERVERS)
def test_code_for_servers_in_the_documents_works(code, store, address, request, tmp_path):
    assert address in code
    if store == "http-sqlite":
        with LockServer(f"sqlite:///{tmp_path}/locks.db", tmp_path / "server.log") as server:
            run(["-c", code.replace(address, server.url.removeprefix("http:"))], tmp_path)
    else:
        url = split_url(request.getfixturevalue(f"{store}_locks"))[0]
        run(["-c", code.replace(address, url.partition(":")[2])], tmp_path)


def test_there_is_code_in_the_documents():
    assert sum(param.values[1] is True for param in BLOCKS) >= 20
    assert {param.values[1] for param in ON_SERVERS} == {store for store, _ in ON.values()}


@pytest.mark.parametrize("name", TRIED_FIRST)
def test_all_code_that_people_try_first_runs_as_it_stands(name):
    assert [code for code, _, runs in blocks(ROOT / name) if not runs] == []


@pytest.mark.parametrize("name", TRIED_FIRST)
def test_code_that_people_try_first_can_be_pasted_at_a_prompt(name):
    """There a blank line ends a block, and nothing else does."""
    for code, _, _ in blocks(ROOT / name):
        typed: list[str] = []
        for line in [*code.splitlines(), ""]:
            typed.append(line)
            if compile_command("\n".join(typed)) is not None:  # raises where a prompt would complain
                typed.clear()
        assert typed == []


@pytest.mark.parametrize("name", ["README.md", "docs/quickstart.md"])  # the translation has the same code
def test_code_that_people_try_first_can_be_tried_again(name, tmp_path):
    for code, on, _ in blocks(ROOT / name) * 2:
        if not on:
            run(["-c", code], tmp_path)


def missing(code: str) -> set[str]:
    """Return the names that *code* uses and neither imports nor makes."""
    used, known = set(), set(dir(builtins))
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                known.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                known.add(name)
            case ast.alias(name=name, asname=other):
                known.add((other or name).partition(".")[0])
    return used - known


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/howto/*.md")), ids=lambda page: page.name)
def test_the_first_code_of_a_how_to_has_its_imports(page):
    for code, _, _ in blocks(page)[:1]:
        assert missing(code) == set()


def test_a_name_that_comes_from_nowhere_is_noticed():
    assert missing("import a.b\ndef f(c): return a, c, d, print") == {"d"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.name)
def test_an_example_runs(example, tmp_path):
    run([str(example)], tmp_path)


def test_there_are_examples():
    assert len(EXAMPLES) >= 6


def reference() -> str:
    return "\n".join(page.read_text("utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))


def test_the_reference_names_everything_public():
    text = reference()
    assert [name for name in holdfast.__all__ if f"`{name}" not in text] == []


def test_the_reference_names_every_setting_and_every_error():
    text = reference()
    settings = holdfast.Settings.__match_args__
    assert [name for name in settings if f"`{name}`" not in text] == []
    assert [kind.__name__ for kind in errors.CODES if f"`{kind.__name__}`" not in text] == []


def test_the_reference_names_every_route_with_what_it_takes_and_answers():
    page = (ROOT / "docs" / "reference" / "http-api.md").read_text("utf-8")
    table = page.partition("## All routes")[2].partition("\n## ")[0]
    assert [
        f"{route.method} {route.path}" for route in ROUTES if f"`{route.method} {route.path}`" not in table
    ] == []
    taken = {
        name for route in ROUTES for fields in (route.query, route.body) if fields for name in fields.fields
    }
    assert [
        name for name in sorted(taken - {"now"}) if f"`{name}`" not in page and f'"{name}"' not in page
    ] == []
    answers = {answer for route in ROUTES for _, answer in route.answers if "/" not in answer}
    assert [name for name in sorted(answers - {"openapi"}) if f'"answer":"{name}"' not in page] == []


def test_the_reference_names_every_setting_and_limit_of_a_server():
    page = (ROOT / "docs" / "reference" / "server-settings.md").read_text("utf-8")
    settings = [name for name in ServerSettings.__match_args__ if name not in ("limits", "accept_times")]
    names = [*settings, *(f"limits.{name}" for name in Limits.__match_args__)]
    assert [name for name in names if f"| `{name}` |" not in page] == []


def test_the_readme_is_in_step_with_its_translation():
    """The same sections, code and sessions; only the words are others."""
    texts = [(ROOT / name).read_text("utf-8") for name in ("README.md", "README.zh-CN.md")]
    sections, rows, sessions = (
        [re.findall(pattern, text, re.MULTILINE | re.DOTALL) for text in texts]
        for pattern in (r"^##+ ", r"^\|", r"^<!-- run -->\n```console\n.*?^```$")
    )
    assert len(sections[0]) == len(sections[1])
    assert len(rows[0]) == len(rows[1])
    assert sessions[0] == sessions[1]


def test_the_track_record_names_tests_that_are_there():
    """By `-k`, which selects nothing, in silence, once a test has another name."""
    record = (ROOT / "tests/README.md").read_text("utf-8").partition("## Track record")[2]
    sources = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("src/holdfast/testing/conformance/*.py")]
    there = "\n".join(str(path.name) + path.read_text("utf-8") for path in sources)
    commands = re.findall(r"`pytest [^`]*-k (?:\"([^\"]+)\"|([a-z_]+))", record)
    assert len(commands) > 100
    words = {word for pair in commands for word in re.findall(r"\w+", "".join(pair))}
    assert not {word for word in words - {"and", "or", "not"} if word not in there}


def test_links_between_documents_lead_somewhere():
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in PAGES
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert broken == []


def sections(page: Path) -> set[str]:
    """Return the names that links into *page* may use, as they are made from its headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_to_a_section_lead_to_one():
    broken = [
        f"{page.relative_to(ROOT)}: {link}#{name}"
        for page in PAGES
        for link, name in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text("utf-8"))
        for target in [(page.parent / link).resolve() if link else page]
        if "://" not in link and target.suffix == ".md" and target.exists() and name not in sections(target)
    ]
    assert broken == []


def test_the_product_speaks_of_itself_alone():
    """No paths of the machine it was written on, nothing left to do."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    telling = re.compile(f"{re.escape(str(ROOT))}/|{re.escape(str(Path.home()))}/|\\bFIX(?:ME)\\b")
    found = []
    for name in listed.stdout.splitlines():
        file = ROOT / name
        if file.is_file() and file.suffix in TEXTS:
            found += [name for line in file.read_text("utf-8").splitlines() if telling.search(line)]
    assert found == []
