"""A statement as it is sent to MySQL or MariaDB: its parameters are put in here, and are literals there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from holdfast.stores.sql.rules.columns import Row

_PARAMETER = re.compile(r":([a-z_]+)")
_GIVEN_OR_CLOCK = re.compile(
    r"coalesce\(:now, (CAST\(UNIX_TIMESTAMP\((?:SYSDATE|NOW)\(6\)\) \* 1000000 AS SIGNED\))\)"
)
_EACH = re.compile(r":each_[a-z]+")
_ROW = re.compile(r"\([^()]*:each_key[^()]*\)")
_NAME = re.compile(r"%\((\w+)\)s")
_ANSWER = re.compile(r"SELECT\b(?!.*\bINTO @)", re.DOTALL)
# Statements of several parts that are run most often. MariaDB has each as one block, and parses it once.
BLOCKS = ("join_queue", "hand_over", "join_full", "pass_permit", "hear")


class Statement:
    """A statement as PyMySQL wants it; it may consist of several, and then one of them has the answer.

    One that *is_block* MariaDB runs as one. All that it answers comes after its commit.

    One with the parameter ``:each_type`` is run once for each of the ``types``, and all have the answer.
    A row with ``:each_key`` and ``:each_attempt`` is written once for each of the ``rows``, which are pairs.
    """

    def __init__(self, text: str, *, is_block: bool = False) -> None:
        self.is_block = is_block
        self._row = ""
        if row := _ROW.search(text):
            self._row = _PARAMETER.sub(r"%(\1)s", _EACH.sub("%%s", row[0]))
            text = text.replace(row[0], ":rows")
        parts = [part.strip() for part in text.split(";\n")]
        commits = "COMMIT" in parts[1:]
        self.begins = parts[0] == "BEGIN"
        self.count = parts.index("COMMIT") + 1 if commits else len(parts)  # after it there are only hints
        self._answer = self.count - (2 if commits else 1)
        if is_block:
            answers = [place for place, part in enumerate(parts) if _ANSWER.match(part)]
            self.answers = len(answers)
            self._answer, self.count = answers[0], answers[-1] + 1
        self._order = _PARAMETER.findall(text)
        self._names = set(self._order)
        self._written = parts
        self._is_for_each = "each_type" in self._names
        self._parts = _formatted(parts)
        # In production no time is given. To read that it is not takes the server longer than its clock.
        self._clocked = _formatted([_GIVEN_OR_CLOCK.sub(r"\1", part) for part in parts])

    def preparation(self, name: str, quote: Callable[[str], str]) -> str:
        """Return what has a connection know the block."""
        parts = ["START TRANSACTION" if part == "BEGIN" else part for part in self._written]
        block = "".join([f"{_PARAMETER.sub('?', part)};\n" for part in parts])
        return f"PREPARE holdfast_{name} FROM " + quote(f"BEGIN NOT ATOMIC\n{block}END")

    def execution(self, name: str, parameters: dict[str, Any], quote: Callable[[str], str]) -> str:
        """Return what runs the block."""
        literals = {each: _literal(parameters[each], quote) for each in self._names}
        return f"EXECUTE holdfast_{name} USING {', '.join([literals[each] for each in self._order])}"

    def filled(self, parameters: dict[str, Any], quote: Callable[[str], str]) -> list[str]:
        """Return the texts with their parameters in them."""
        if not self._names:
            return self._parts
        if self._is_for_each:
            each = [{**parameters, "each_type": type} for type in json.loads(parameters["types"])]
            return [text for given in each for text in self._filled(given, quote)]
        if self._row:
            return self._filled_with_rows(parameters, quote)
        return self._filled(parameters, quote)

    def _filled(self, parameters: dict[str, Any], quote: Callable[[str], str]) -> list[str]:
        literals = {name: _literal(parameters[name], quote) for name in self._names}
        parts = self._parts if literals.get("now", "NULL") != "NULL" else self._clocked
        return [part % literals for part in parts]

    def _filled_with_rows(self, parameters: dict[str, Any], quote: Callable[[str], str]) -> list[str]:
        names = _NAME.findall(self._row)
        row = self._row % {name: _literal(parameters[name], quote).replace("%", "%%") for name in names}
        rows = ", ".join([row % (quote(key), quote(attempt)) for key, attempt in parameters["rows"]])
        return [part % {"rows": rows} for part in self._parts]

    def answer(self, results: list[list[Row]]) -> list[Row]:
        """Return the rows that are the answer, of what the texts gave."""
        if self.is_block:
            results = results[self._answer : self.count]
        if self.is_block or self._is_for_each:
            return [row for rows in results for row in rows]
        return results[self._answer]


def _formatted(parts: list[str]) -> list[str]:
    return [_PARAMETER.sub(r"%(\1)s", part.replace("%", "%%")) for part in parts]


def _literal(value: Any, quote: Callable[[str], str]) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, list):  # for IN and FIELD
        return ", ".join([quote(each) for each in value])
    return quote(value)
