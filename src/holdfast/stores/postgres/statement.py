"""A statement as it is sent to PostgreSQL, with its values as the wire has them, and what comes back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from holdfast import errors
from holdfast.stores.postgres import variables
from holdfast.stores.sql.rules.columns import Row

Value = Callable[[bytes], Any]

_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_INTEGERS = (20, 21, 23)  # OIDs of bigint, smallint, integer
_BOOLEAN = 16


class Statement:
    """A statement as libpq wants it: numbered parameters, and their names in that order."""

    def __init__(self, name: str, text: str) -> None:
        self.name = f"holdfast_{name}".encode()
        names: list[str] = []

        def numbered(match: re.Match[str]) -> str:
            if match[1] not in names:
                names.append(match[1])
            return f"${names.index(match[1]) + 1}"

        self.text = _PARAMETER.sub(numbered, text).encode()
        self._names = names
        self.columns: list[Value] | None = None

    def values(self, parameters: dict[str, Any], codec: str) -> list[bytes | None]:
        """Return parameters as the wire has them."""
        try:
            return [_to_wire(parameters[name], codec) for name in self._names]
        except UnicodeEncodeError as error:
            raise errors.StoreMisconfigured(
                f"PostgreSQL: {variables.encoding_remark(variables.ASCII)}: {error.object!r}"
            ) from error

    def rows(self, result: Any) -> list[Row]:
        """Return a result as Python has it."""
        if not result.ntuples:
            return []
        if self.columns is None:
            self.columns = [_from_wire(result.ftype(n)) for n in range(result.nfields)]
        get, columns = result.get_value, self.columns
        return [
            tuple(
                [
                    None if (value := get(row, n)) is None else convert(value)
                    for n, convert in enumerate(columns)
                ]
            )
            for row in range(result.ntuples)
        ]


def _to_wire(value: Any, codec: str) -> bytes | None:
    if type(value) is str:
        return value.encode(codec)
    if value is None:
        return None
    if value is True or value is False:
        return b"t" if value else b"f"
    return str(value).encode()


def _from_wire(oid: int) -> Value:
    if oid in _INTEGERS:
        return int
    if oid == _BOOLEAN:
        return lambda value: value == b"t"
    return bytes.decode
