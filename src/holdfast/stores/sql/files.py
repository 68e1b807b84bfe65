"""SQL kept in files: named statements, and numbered schema versions. Any SQL store can use it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_SHORTHAND = re.compile(r"^-- (:[a-z_]+) =(.*(?:\n--   .*)*)$", re.MULTILINE)
_SCHEMA = re.compile(r"^(\d{3})_\w+\.sql$")

SHARED = "holdfast.stores.sql"  # has the statements that are the same in several databases


class Statements:
    """The statements of some packages, as attributes; of two with one name the last counts.

    A file may define shorthands in comments before its first statement, ``-- :clock = coalesce(:now, …)``,
    which may go on in indented lines. Each is replaced by what it stands for, which may be nothing, so that
    an expression is said once for all statements. Of two with one name the last counts here as well.
    """

    def __init__(self, *packages: str) -> None:
        texts = [files(package).joinpath("statements.sql").read_text("utf-8") for package in packages]
        text = _written_out("\n".join(texts))
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
    entries = files(package).joinpath("schema").iterdir()
    found = [(match, entry) for entry in entries if (match := _SCHEMA.match(entry.name))]
    return sorted((int(match[1]), entry.read_text("utf-8")) for match, entry in found)


def _written_out(text: str) -> str:
    """Put in what the shorthands of a file stand for."""
    for shorthand, meaning in dict(_SHORTHAND.findall(text)).items():
        meant = meaning.replace("\n--", "").strip().replace("\\", "\\\\")
        text = re.sub(rf"(?<![:\w]){shorthand}\b(?! =)", meant, text)
    return text


def _bare(text: str) -> str:
    """Drop comments and the final semicolon: what is left is what the driver is given."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return "\n".join(lines).strip().removesuffix(";")
