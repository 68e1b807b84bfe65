"""Objects on the wire: their members, read strictly, and made of requests and into requests.

A member that nobody lists here is as its type in the request says. So a new attribute of a request can be
sent, is checked and is described at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

from holdfast.core.data import data, defaults
from holdfast.core.wire.shapes import TOO_DEEP, Flag, Json, Many, Number, OneOf, Shape, Text, Whole, refuse
from holdfast.core.wire.shapes import read_json as read_json
from holdfast.errors import RequestRefused, SettingsError

REQUIRED = object()


@data
class Field:
    """One member of a body, or one part of a query."""

    shape: Shape
    default: Any = None  # what it is if nobody says; REQUIRED: somebody must
    about: str = ""
    attribute: str | None = None  # of the request, or of its part; None: the same name, empty: it has none
    sparing: bool = False  # sent only if it is not the usual: a server of an earlier release may not know it
    blank: bool = False  # sent in a query although it is empty


def must(shape: Shape, about: str = "") -> Field:
    """Return a member that has to be there."""
    return Field(shape, REQUIRED, about)


def may(shape: Shape, default: object = None, about: str = "", **how: Any) -> Field:
    """Return a member that need not be said."""
    return Field(shape, default, about, **how)


def seldom(shape: Shape, default: object = None, about: str = "") -> Field:
    """Return a member that is only sent if it is not the usual."""
    return Field(shape, default, about, sparing=True)


class Fields(Shape):
    """An object with these members, and no others; of *kind*, if requests have such objects."""

    def __init__(self, fields: Mapping[str, Field], kind: type | None = None) -> None:
        self.fields = fields
        self.kind = kind
        self._defaults = {name: field.default for name, field in fields.items()}
        self._required = tuple(name for name, field in fields.items() if field.default is REQUIRED)
        self._read_value = {name: field.shape.read for name, field in fields.items()}
        self._read_text = {name: field.shape.read_text for name, field in fields.items()}
        self._made = tuple(
            (name, field.attribute or name, _unless_plain(field.shape, "make"))
            for name, field in fields.items()
            if field.attribute is None or (field.attribute and "." not in field.attribute)
        )
        self._said = tuple(
            (
                name,
                attrgetter(field.attribute or name),
                _usual(kind, field.attribute or name) if field.sparing else None,
                _unless_plain(field.shape, "say"),
            )
            for name, field in fields.items()
            if field.attribute != ""
        )

    @classmethod
    def of(cls, kind: type, listed: Mapping[str, Field]) -> Fields:
        """Return the object for *kind*: with members that are *listed*, and others as their types say."""
        return cls(complete(kind, listed, {}), kind)

    def read(self, value: Any, name: str = "the body") -> Json:
        if not isinstance(value, dict):
            refuse(name, value, "an object")
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
                refuse(f"a member of {name}", member, f"one of those that are known: {known}")
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

    def say(self, value: Any) -> Json:
        found: Json = {}
        for name, get, usual, say in self._said:
            said = get(value)
            if said is None or (usual is not None and said == usual):
                continue
            found[name] = said if say is None else say(said)
        return found

    def make(self, value: Json) -> Any:
        """Return the object of our kind that *value* says."""
        return self.make_with(value, {})

    def make_with(self, value: Json, known: Json) -> Any:
        """Return the object that *value* says; what is *known*, and is added to, counts more than that."""
        assert self.kind is not None, "no request has such an object"
        for name, attribute, make in self._made:
            if attribute not in known:
                said = value[name]
                known[attribute] = said if make is None or said is None else make(said)
        return self.kind(**known)


def complete(
    kind: type, listed: Mapping[str, Field], known: Mapping[str, Field], left_out: Collection[str] = ()
) -> dict[str, Field]:
    """Return the members for all that *kind* has: those *listed*, then what is *known* or derived from types.

    What is known comes last, in its order.
    """
    said = {field.attribute or name for name, field in listed.items()} | {*left_out}
    names: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    missing = [name for name in names if name not in said]
    derived = [name for name in missing if name not in known]
    hints = get_type_hints(kind) if derived else {}
    usual = defaults(kind)
    return {
        **listed,
        **{name: _derive(hints[name], usual.get(name, REQUIRED)) for name in derived},
        **{name: known[name] for name in known if name in missing},
    }


def read_body(shape: Fields, body: bytes) -> Json:
    """Return what a body says. One that can be read may still be too deep to be checked, or to be shown."""
    try:
        return shape.read(read_json(body))
    except RecursionError as error:
        raise RequestRefused(400, TOO_DEEP) from error


_SHAPES: dict[Any, Shape] = {str: Text(shortest=0), int: Whole(), float: Number(), bool: Flag()}


def _derive(hint: Any, default: Any) -> Field:
    """Return the member for an attribute of a request of which nothing but its type is known."""
    return Field(_shape_of(hint), default, sparing=default is not REQUIRED)


def _shape_of(hint: Any) -> Shape:
    if hint in _SHAPES:
        return _SHAPES[hint]
    args = get_args(hint)
    if get_origin(hint) is Literal:
        return OneOf(args)
    if get_origin(hint) is tuple:
        return Many(_shape_of(args[0]), 1000)
    return _shape_of(next(each for each in args if each is not type(None)))


def _usual(kind: type | None, attribute: str) -> Any:
    """Return what *attribute* is unless somebody says otherwise: it may be one of an attribute's own."""
    assert kind is not None, "only what a request has can be usual"
    name, _, rest = attribute.partition(".")
    usual = defaults(kind)[name]
    return attrgetter(rest)(usual) if rest else usual


def _unless_plain(shape: Shape, method: str) -> Callable[[Any], Any] | None:
    is_plain = getattr(type(shape), method) is getattr(Shape, method)
    return None if is_plain else getattr(shape, method)
