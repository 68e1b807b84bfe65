"""What may be in a body or a query: read strictly, and described as JSON Schema, from one definition.

Whatever does not fit is refused with its name, its value and what it must be. Nothing is guessed: a member
that nobody knows is a mistake that the caller should hear of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from holdfast.core import keys
from holdfast.core.data import data
from holdfast.errors import RequestRefused, SettingsError

MOST_INTEGER = 2**63 - 1
PRINTABLE = "[^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]"  # for JSON Schema
TOO_DEEP = "the body is nested too deeply"
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

Json = dict[str, Any]


class Shape:
    """One kind of value."""

    def read(self, value: Any, name: str) -> Any:
        """Return *value* as a handler wants it, or raise `SettingsError`."""
        raise NotImplementedError

    def read_text(self, text: str, name: str) -> Any:
        """Return what a query says."""
        return self.read(text, name)

    def schema(self) -> Json:
        """Return it as JSON Schema."""
        raise NotImplementedError


def _refuse(name: str, value: Any, wanted: str) -> NoReturn:
    shown = json.dumps(value, default=str, ensure_ascii=True)
    raise SettingsError(f"{name} is {shown if len(shown) < 60 else f'{shown[:57]}…'}; it must be {wanted}")


@data
class Text(Shape):
    """Text that can be printed."""

    longest: int = 255
    shortest: int = 1
    pattern: str | None = None  # of the whole; for ids that become names of files and channels
    multiline: bool = False

    def read(self, value: Any, name: str) -> str:
        if not isinstance(value, str) or not self.shortest <= len(value) <= self.longest:
            _refuse(name, value, f"a string of {self.shortest} to {self.longest} characters")
        if self.pattern is not None:
            if re.fullmatch(self.pattern, value) is None:
                _refuse(name, value, f"a string that matches {self.pattern}")
        elif self.multiline:
            if any("\ud800" <= sign <= "\udfff" or sign == "\0" for sign in value):
                _refuse(
                    name, value, "text that has a UTF-8 form, without NUL"
                )  # PostgreSQL has none in texts
        elif not value.isprintable() and _UNPRINTABLE.search(value):  # some spaces are neither
            _refuse(name, value, "text without characters that cannot be printed")
        return value

    def schema(self) -> Json:
        found: Json = {"type": "string", "minLength": self.shortest, "maxLength": self.longest}
        if self.pattern is not None:
            found["pattern"] = f"^(?:{self.pattern})$"
        else:
            found["pattern"] = "^[^\\u0000]*$" if self.multiline else f"^{PRINTABLE}*$"
        return found


def _read_key(value: Any, name: str) -> str:
    if not isinstance(value, str):  # an `InvalidKey` would have all of it in the answer, however deep it is
        _refuse(name, value, "a string")
    return keys.validate(value)


@data
class Key(Shape):
    """The name of a lock; or how names begin, which may be nothing."""

    empty: bool = False

    def read(self, value: Any, name: str) -> str:
        if value == "" and self.empty:
            return ""
        return _read_key(value, name)

    def schema(self) -> Json:
        least = 0 if self.empty else 1
        return {
            "type": "string",
            "minLength": least,
            "maxLength": keys.MAX_LENGTH,
            "pattern": f"^{PRINTABLE}*$",
        }


@data
class WorkType(Shape):
    """What keys of work begin with, up to their first colon; empty for those that have none."""

    longest: int = keys.MAX_LENGTH - 1

    def read(self, value: Any, name: str) -> str:
        if value == "":
            return ""
        if ":" in _read_key(value, name) or len(value) > self.longest:
            _refuse(
                name, value, f"what keys begin with before their first colon, at most {self.longest} long"
            )
        return str(value)

    def schema(self) -> Json:
        return {"type": "string", "maxLength": self.longest, "pattern": f"^{PRINTABLE[:-1]}:]*$"}


@data
class JsonText(Shape):
    """JSON, as text: whoever reads it later must not be the first to find that it is none."""

    largest: int  # bytes in UTF-8

    def read(self, value: Any, name: str) -> str:
        if not isinstance(value, str) or len(value) > self.largest:
            _refuse(name, value, f"JSON as text, of at most {self.largest} bytes")
        try:
            size = len(value.encode())
            _decode(value)
        except (ValueError, RecursionError):
            _refuse(name, value, "JSON as text")
        if size > self.largest:
            _refuse(name, value, f"JSON as text, of at most {self.largest} bytes; it has {size}")
        return value

    def schema(self) -> Json:
        return {"type": "string", "maxLength": self.largest, "format": "json"}


@data
class Number(Shape):
    """Seconds, or another number."""

    least: float = 0.0
    most: float = 1e12
    above: bool = False  # more than *least*, not as much

    def read(self, value: Any, name: str) -> float:
        fits = type(value) in (int, float) and self.least <= value <= self.most  # what is no number is not
        if not fits or (self.above and value == self.least):
            _refuse(
                name, value, f"a number {'above' if self.above else 'from'} {self.least:g} to {self.most:g}"
            )
        return float(value)

    def read_text(self, text: str, name: str) -> float:
        try:
            return self.read(float(text), name)
        except ValueError:
            _refuse(name, text, f"a number from {self.least:g} to {self.most:g}")

    def schema(self) -> Json:
        return {
            "type": "number",
            "exclusiveMinimum" if self.above else "minimum": self.least,
            "maximum": self.most,
        }


@data
class Whole(Shape):
    """A whole number."""

    least: int = 0
    most: int = MOST_INTEGER

    def read(self, value: Any, name: str) -> int:
        if type(value) is float and value.is_integer():
            value = int(value)  # JSON knows only one kind of number
        if type(value) is not int or not self.least <= value <= self.most:
            _refuse(name, value, f"a whole number from {self.least} to {self.most}")
        return value

    def read_text(self, text: str, name: str) -> int:
        if re.fullmatch(r"-?[0-9]{1,19}", text) is None:
            _refuse(name, text, f"a whole number from {self.least} to {self.most}")
        return self.read(int(text), name)

    def schema(self) -> Json:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@data
class Flag(Shape):
    """Yes or no."""

    fixed: bool = False  # there is nothing to choose; only so that it is a class of values

    def read(self, value: Any, name: str) -> bool:
        if not isinstance(value, bool):
            _refuse(name, value, "true or false")
        return value

    def schema(self) -> Json:
        return {"type": "boolean"}


@data
class OneOf(Shape):
    """One of some words."""

    words: tuple[str, ...]

    def read(self, value: Any, name: str) -> str:
        if not isinstance(value, str) or value not in self.words:
            _refuse(name, value, f"one of {', '.join(self.words)}")
        return value

    def schema(self) -> Json:
        return {"type": "string", "enum": list(self.words)}


@data
class Many(Shape):
    """Several values of one kind."""

    each: Shape
    most: int

    def read(self, value: Any, name: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > self.most:
            _refuse(name, value, f"a list of at most {self.most}")
        return tuple(self.each.read(item, f"{name}[{at}]") for at, item in enumerate(value))

    def schema(self) -> Json:
        return {"type": "array", "items": self.each.schema(), "maxItems": self.most}


REQUIRED = object()


@data
class Field:
    """One member of a body, or one part of a query."""

    shape: Shape
    default: Any = None  # what it is if nobody says; REQUIRED: somebody must
    about: str = ""


class Fields(Shape):
    """An object with these members, and no others."""

    def __init__(self, fields: Mapping[str, Field]) -> None:
        self.fields = fields
        self._defaults = {name: field.default for name, field in fields.items()}
        self._required = tuple(name for name, field in fields.items() if field.default is REQUIRED)
        self._read_value = {name: field.shape.read for name, field in fields.items()}
        self._read_text = {name: field.shape.read_text for name, field in fields.items()}

    def read(self, value: Any, name: str = "the body") -> Json:
        if not isinstance(value, dict):
            _refuse(name, value, "an object")
        return self._read(value, name, self._read_value)

    def read_query(self, query: str) -> Json:
        """Return what a query says."""
        if not query:
            return self._read({}, "the query", self._read_text)
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="strict")
        except (ValueError, UnicodeDecodeError) as error:
            raise RequestRefused(400, f"the query cannot be read: {error}") from error
        given = dict(pairs)
        if len(given) != len(pairs):
            raise SettingsError("the query says something twice")
        return self._read(given, "the query", self._read_text)

    def _read(
        self, given: Mapping[str, Any], name: str, readers: Mapping[str, Callable[[Any, str], Any]]
    ) -> Json:
        found = self._defaults.copy()  # most callers say little of all that they could
        for member, value in given.items():
            read = readers.get(member)
            if read is None:
                told = [each for each in self.fields if each != "now"]  # that is for tests of the server
                known = ", ".join(told) or "nothing"
                _refuse(f"a member of {name}", member, f"one of those that are known: {known}")
            found[member] = read(value, member)
        for member in self._required:
            if member not in given:
                raise SettingsError(f"{name} has no {member}; it must say that")
        return found

    def schema(self) -> Json:
        properties = {}
        for member, field in self.fields.items():
            properties[member] = field.shape.schema()
            if field.about:
                properties[member]["description"] = field.about
            if field.default not in (None, REQUIRED) and isinstance(field.default, str | int | float | bool):
                properties[member]["default"] = field.default
        found: Json = {"type": "object", "properties": properties, "additionalProperties": False}
        return {**found, "required": list(self._required)} if self._required else found


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


def read_json(body: bytes) -> Any:
    """Return a body's JSON; infinities and the like are none."""
    try:
        return _decode(body.decode("utf-8"))
    except RecursionError as error:
        raise RequestRefused(400, TOO_DEEP) from error
    except ValueError as error:
        raise RequestRefused(400, f"the body is not JSON: {error}") from error


def read_body(shape: Fields, body: bytes) -> Json:
    """Return what a body says. One that can be read may still be too deep to be checked, or to be shown."""
    try:
        return shape.read(read_json(body))
    except RecursionError as error:
        raise RequestRefused(400, TOO_DEEP) from error
