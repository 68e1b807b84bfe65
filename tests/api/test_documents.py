"""Documents that cannot rot: their code runs, they name everything there is, they give nothing away."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.server.routes import ROUTES
from holdfast.server.settings import Limits, ServerSettings

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
TEXTS = {".py", ".md", ".sql", ".toml", ".svg", ".js", ".css", ".html", ".service", ".conf", ""}
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"(<!-- run -->\n)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block[2], bool(block[1]), id=f"{page.relative_to(ROOT)}:{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.finditer(page.read_text("utf-8")), 1)
]


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


def test_there_is_code_in_the_documents():
    assert sum(param.values[1] is True for param in BLOCKS) >= 20


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
    telling = re.compile(r"/(?:work|root|farm)/(?:main|shared|steering|\.pyenv|\.library)|\bFIXME\b")
    found = []
    for name in listed.stdout.splitlines():
        file = ROOT / name
        if file.is_file() and file.suffix in TEXTS:
            found += [name for line in file.read_text("utf-8").splitlines() if telling.search(line)]
    assert [name for name in found if name != "tests/api/test_documents.py"] == []
