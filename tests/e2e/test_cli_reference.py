"""docs/reference/cli.md has the help of every command, word for word.

After changing a command: ``python tests/e2e/test_cli_reference.py`` writes the page's help blocks anew.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.cli import make_parser

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
BLOCK = re.compile(r"(<!-- help: (.*?) -->\n```text\n).*?(```\n)", re.DOTALL)


def commands():
    (subparsers,) = (
        action for action in make_parser()._actions if action.dest == "==SUPPRESS==" and action.choices
    )
    return ["", *subparsers.choices]


def help_of(command):
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *command.split(), "--help"],
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize("command", commands())
def test_the_help_is_in_the_reference(command):
    found = {match[2]: match[0] for match in BLOCK.finditer(PAGE.read_text("utf-8"))}
    name = f"holdfast {command}".strip()
    assert name in found, f"{PAGE} has no block for {name}"
    assert f"```text\n{help_of(command)}```\n" in found[name]


def test_every_line_of_help_fits_into_a_terminal_of_80_columns():
    blocks = [match[0] for match in BLOCK.finditer(PAGE.read_text("utf-8"))]
    assert all(len(line) <= 80 for block in blocks for line in block.splitlines())


def test_every_error_and_its_exit_code_are_in_the_reference():
    page = PAGE.read_text("utf-8")
    for kind, (code, _) in errors.CODES.items():
        assert re.search(rf"^\| {code} \|.*`{kind.__name__}`", page, re.MULTILINE), kind


if __name__ == "__main__":
    PAGE.write_text(
        BLOCK.sub(
            lambda m: m[1] + help_of(m[2].removeprefix("holdfast").strip()) + m[3], PAGE.read_text("utf-8")
        ),
        "utf-8",
    )
