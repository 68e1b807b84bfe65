"""What messages tell people to use is there: functions and commands."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.cli import main

SOURCE = Path(holdfast.__file__).parent
SCRIPTS = "completion.py"  # of shells, with functions of their own
FILES = [
    file for file in sorted(SOURCE.rglob("*.py")) if "testing" not in file.parts and file.name != SCRIPTS
]

OF_OTHERS = {"atomic", "begin_nested", "create_engine", "transaction", "wait_for"}
OF_DATABASES = {"LAST_INSERT_ID", "current_database", "current_schema", "database", "pg_backend_pid"}
CALL = re.compile(r"\b(\w+)\((?:\)|…)")
COMMAND = re.compile(r"['`]holdfast ([a-z]+)|(?:run|Run|with|tokens|command|behind --): holdfast ([a-z]+)")


def messages() -> Iterator[tuple[str, str]]:
    """Return where each text is that is not a docstring, and the text. That of an f-string is in pieces."""
    for file in FILES:
        tree = ast.parse(file.read_text("utf-8"))
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
                yield f"{file.relative_to(SOURCE)}:{node.lineno}", node.value


def public() -> set[str]:
    """Return the public names, and those of their methods."""
    names = set(holdfast.__all__)
    for name in holdfast.__all__:
        if inspect.isclass(thing := getattr(holdfast, name)):
            names |= {method for method in dir(thing) if not method.startswith("_")}
    return names


def test_functions_that_messages_name_are_public() -> None:
    known = public() | OF_OTHERS | OF_DATABASES
    named = [(place, name) for place, text in messages() for name in CALL.findall(text)]
    assert len(named) > 15
    assert [(place, name) for place, name in named if name not in known and not name.startswith("__")] == []


def test_commands_that_messages_name_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    named = {name for _, text in messages() for found in COMMAND.findall(text) for name in found if name}
    assert {"schema", "token", "work"} <= named
    for name in sorted(named):
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        assert (name, left.value.code) == (name, 0)
