"""SQL kept in files: named statements, and numbered schema versions. Any SQL store can use it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_SCHEMA = re.compile(r"^(\d{3})_\w+\.sql$")


class Statements:
    """The statements of one store, as attributes."""

    def __init__(self, package: str, file: str = "statements.sql") -> None:
        text = files(package).joinpath(file).read_text("utf-8")
        found = list(_NAME.finditer(text))
        ends = [match.start() for match in found[1:]] + [len(text)]
        self._by_name = {
            match[1]: _bare(text[match.end() : end]) for match, end in zip(found, ends, strict=True)
        }

    def __getitem__(self, name: str) -> str:
        return self._by_name[name]

    def __getattr__(self, name: str) -> str:
        try:
            return self._by_name[name]
        except KeyError:
            raise AttributeError(f"no statement is named {name!r}") from None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._by_name.items())


def schema_versions(package: str) -> list[tuple[int, str]]:
    """Return (version, script) of every step of a store's schema, in order."""
    folder: Traversable = files(package).joinpath("schema")
    steps = [
        (int(match[1]), entry.read_text("utf-8"))
        for entry in folder.iterdir()
        if (match := _SCHEMA.match(entry.name))
    ]
    return sorted(steps)


def _bare(text: str) -> str:
    """Drop comments and the final semicolon: what is left is what the driver is given."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return "\n".join(lines).strip().removesuffix(";")
