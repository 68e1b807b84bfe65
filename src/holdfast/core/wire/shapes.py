"""What may be in a body or a query: read strictly, and described as JSON Schema, from one definition.

Whatever does not fit is refused with its name, its value and what it must be. Nothing is guessed: a member
that nobody knows is a mistake that the caller should hear of.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

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

    def make(self, value: Any) -> Any:
        """Return what a request has for *value*, which was read."""
        return value

    def say(self, value: Any) -> Any:
        """Return *value* of a request as it is sent."""
        return value


def refuse(name: str, value: Any, wanted: str) -> NoReturn:
    """Raise what says that *name* has a value that it cannot have, and what it must be."""
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
            refuse(name, value, f"a string of {self.shortest} to {self.longest} characters")
        if self.pattern is not None:
            if re.fullmatch(self.pattern, value) is None:
                refuse(name, value, f"a string that matches {self.pattern}")
        elif self.multiline:
            if any("\ud800" <= sign <= "\udfff" or sign == "\0" for sign in value):
                refuse(name, value, "text that has a UTF-8 form, without NUL")  # PostgreSQL has none in texts
        elif not value.isprintable() and _UNPRINTABLE.search(value):  # some spaces are neither
            refuse(name, value, "text without characters that cannot be printed")
        return value

    def schema(self) -> Json:
        pattern = "^[^\\u0000]*$" if self.multiline else f"^{PRINTABLE}*$"
        if self.pattern is not None:
            pattern = f"^(?:{self.pattern})$"
        return {"type": "string", "minLength": self.shortest, "maxLength": self.longest, "pattern": pattern}


def _read_key(value: Any, name: str) -> str:
    if not isinstance(value, str):  # an `InvalidKey` would have all of it in the answer, however deep it is
        refuse(name, value, "a string")
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
        return Text(keys.MAX_LENGTH, 0 if self.empty else 1).schema()


@data
class WorkType(Shape):
    """What keys of work begin with, up to their first colon; empty for those that have none."""

    longest: int = keys.MAX_LENGTH - 1

    def read(self, value: Any, name: str) -> str:
        if value == "":
            return ""
        if ":" in _read_key(value, name) or len(value) > self.longest:
            refuse(name, value, f"what keys begin with before their first colon, at most {self.longest} long")
        return str(value)

    def schema(self) -> Json:
        return {"type": "string", "maxLength": self.longest, "pattern": f"^{PRINTABLE[:-1]}:]*$"}


@data
class JsonText(Shape):
    """JSON, as text: whoever reads it later must not be the first to find that it is none."""

    largest: int  # bytes in UTF-8

    def read(self, value: Any, name: str) -> str:
        if not isinstance(value, str) or len(value) > self.largest:
            refuse(name, value, f"JSON as text, of at most {self.largest} bytes")
        try:
            size = len(value.encode())
            _decode(value)
        except (ValueError, RecursionError):
            refuse(name, value, "JSON as text")
        if size > self.largest:
            refuse(name, value, f"JSON as text, of at most {self.largest} bytes; it has {size}")
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
        fits = type(value) in (int, float) and self.least <= value <= self.most  # what is not a number is not
        if not fits or (self.above and value == self.least):
            refuse(
                name, value, f"a number {'above' if self.above else 'from'} {self.least:g} to {self.most:g}"
            )
        return float(value)

    def read_text(self, text: str, name: str) -> float:
        try:
            return self.read(float(text), name)
        except ValueError:
            refuse(name, text, f"a number from {self.least:g} to {self.most:g}")

    def schema(self) -> Json:
        minimum = "exclusiveMinimum" if self.above else "minimum"
        return {"type": "number", minimum: self.least, "maximum": self.most}


@data
class Whole(Shape):
    """A whole number."""

    least: int = 0
    most: int = MOST_INTEGER

    def read(self, value: Any, name: str) -> int:
        if type(value) is float and value.is_integer():
            value = int(value)  # JSON knows only one kind of number
        if type(value) is not int or not self.least <= value <= self.most:
            refuse(name, value, f"a whole number from {self.least} to {self.most}")
        return value

    def read_text(self, text: str, name: str) -> int:
        if re.fullmatch(r"-?[0-9]{1,19}", text) is None:
            refuse(name, text, f"a whole number from {self.least} to {self.most}")
        return self.read(int(text), name)

    def schema(self) -> Json:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


class Flag(Shape):
    """Yes or no."""

    def read(self, value: Any, name: str) -> bool:
        if not isinstance(value, bool):
            refuse(name, value, "true or false")
        return value

    def schema(self) -> Json:
        return {"type": "boolean"}


@data
class OneOf(Shape):
    """One of some words."""

    words: tuple[str, ...]

    def read(self, value: Any, name: str) -> str:
        if not isinstance(value, str) or value not in self.words:
            refuse(name, value, f"one of {', '.join(self.words)}")
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
            refuse(name, value, f"a list of at most {self.most}")
        return tuple(self.each.read(item, f"{name}[{at}]") for at, item in enumerate(value))

    def schema(self) -> Json:
        return {"type": "array", "items": self.each.schema(), "maxItems": self.most}

    def make(self, value: Any) -> tuple[Any, ...]:
        return tuple(map(self.each.make, value))

    def say(self, value: Any) -> list[Any]:
        return list(map(self.each.say, value))


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_decode, _scan = _decoder.decode, _decoder.scan_once  # type: ignore[attr-defined]


def read_json(body: bytes) -> Any:
    """Return a body's JSON; infinities and the like are none."""
    try:
        text = body.decode("utf-8")
        try:
            value, end = _scan(text, 0)
            if end == len(text):
                return value
        except StopIteration:  # something is missing
            pass
        return _decode(text)  # which takes spaces around it, and says what is wrong
    except RecursionError as error:
        raise RequestRefused(400, TOO_DEEP) from error
    except ValueError as error:
        raise RequestRefused(400, f"the body is not JSON: {error}") from error
