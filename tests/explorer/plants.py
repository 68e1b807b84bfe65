"""Plants a flaw in the real code, by its text: a function is compiled once more with something changed."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping
from typing import Any

import pytest  # noqa: TC002 - for the signature


def plant(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, changes: Mapping[str, str]) -> None:
    """Change a function of a class or a module for the time of a test: what is right to what is wrong."""
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    for right, wrong in changes.items():
        assert source.count(right) == 1, f"{name} has no {right!r}, or several"
        source = source.replace(right, wrong)
    code = compile(f"from __future__ import annotations\n{source}", f"<{name} with a flaw>", "exec")
    made: dict[str, Any] = {}
    exec(code, function.__globals__, made)
    monkeypatch.setattr(owner, name, made[name])
