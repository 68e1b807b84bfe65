"""Copies of the source: a healthy one, and one with a flaw for each mutant.

The copies share everything but the file that is changed, bytecode as well: to compile all of the source takes
ten times as long as the test that has to fail.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proof.mutants.mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]


class CannotPlant(Exception):
    """The text that a mutant replaces is not there, or not once; or what comes of it does not run."""


def copy(folder: Path) -> Path:
    """Copy the source as it is, with the bytecode of all of it."""
    healthy = folder / "healthy"
    shutil.copytree(ROOT / "src", healthy)  # with the times of its files, by which bytecode knows its source
    compileall.compile_dir(healthy, quiet=2)
    return healthy


@contextmanager
def planted(mutant: Mutant, healthy: Path) -> Iterator[Path]:
    """Give a copy with a flaw in it. What it has in common with the healthy one are the same files."""
    source = Path(tempfile.mkdtemp(dir=healthy.parent, prefix=re.sub(r"\W+", "-", mutant.name)))
    shutil.copytree(healthy, source, copy_function=os.link, dirs_exist_ok=True)
    try:
        plant(mutant, source, write=True)
        yield source
    finally:
        shutil.rmtree(source)


def plant(mutant: Mutant, source: Path, *, write: bool) -> None:
    """Change a copy of the source; without *write*, only see whether that could be done."""
    path = source / "holdfast" / mutant.file
    text = path.read_text("utf-8")
    for old, new in mutant.changes:
        if (found := text.count(old)) != 1:
            raise CannotPlant(f"{mutant.name!r}: {mutant.file} has this {found} times, not once:\n{old}")
        text = text.replace(old, new)
    if write:
        path.unlink()  # others have the same file
        path.write_text(text, "utf-8")
        for bytecode in path.parent.glob(f"__pycache__/{path.stem}.*"):
            bytecode.unlink()  # within a second, and of the same length, it would be taken for up to date
