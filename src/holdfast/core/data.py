"""Plain data: small classes of values, compared, hashed and shown by their fields.

Type checkers see frozen dataclasses. When the program runs they are made here, because everybody would pay
for the real ones: importing `dataclasses` and defining ours with it took a third of ``import holdfast``,
and a frozen dataclass takes three times as long to make, for every request and every answer.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")

_PLAIN = frozenset({str, int, float, bool, type(None)})


@dataclass_transform(frozen_default=True)
def data(cls: type[T]) -> type[T]:
    """Make *cls* a class of values out of its annotations, their defaults and its ``__post_init__``."""
    names = tuple(vars(cls)["__annotations__"])
    defaults = {name: vars(cls)[name] for name in names if name in vars(cls)}
    members = {
        name: value for name, value in vars(cls).items() if name not in {*names, "__dict__", "__weakref__"}
    }
    members |= {
        "__slots__": names,
        "__match_args__": names,
        "__init__": _Init(names, defaults, "__post_init__" in members),
        "__eq__": _equal,
        "__hash__": _hash,
        "__repr__": _show,
        "__replace__": replace,  # for copy.replace, which newer Pythons have
        "_values": attrgetter(*names),
    }
    return cast("type[T]", type(cls.__name__, cls.__bases__, members))


def replace(value: T, /, **changes: Any) -> T:
    """Return a copy of *value* with some fields changed."""
    return type(value)(**(fields(value) | changes))


def defaults(kind: type) -> dict[str, Any]:
    """Return what those fields of *kind* are that need not be said."""
    given: tuple[Any, ...] = kind.__init__.__defaults__ or ()  # type: ignore[misc]
    names: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    return dict(zip(names[len(names) - len(given) :], given, strict=True))


def as_dict(value: object) -> Any:
    """Return *value* as dictionaries and lists, ready for JSON."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, (tuple, list)):
        return [as_dict(each) for each in value]
    if not hasattr(kind, "_values"):
        return value
    return {
        name: each if type(each := getattr(value, name)) in _PLAIN else as_dict(each)
        for name in _fields(value)
    }


def fields(value: object) -> dict[str, Any]:
    """Return the fields of *value*, as they are."""
    return {name: getattr(value, name) for name in _fields(value)}


class _Init:
    """Stands for the constructor of a class until it is first needed: most programs need few of them."""

    __slots__ = ("_how",)

    def __init__(self, *how: Any) -> None:
        self._how = how

    def __get__(self, instance: object, owner: type) -> Any:
        made = _make_init(*self._how)
        for kind in owner.__mro__:
            if vars(kind).get("__init__") is self:
                kind.__init__ = made  # type: ignore[misc]
        return made.__get__(instance, owner)


def _make_init(names: tuple[str, ...], defaults: dict[str, Any], checks: bool) -> Any:
    # Written out, as a person would: nothing else comes near the speed of plain assignments.
    parameters = [f"{name}=defaults[{name!r}]" if name in defaults else name for name in names]
    body = [f"self.{name} = {name}" for name in names] + ["self.__post_init__()"] * checks
    made: dict[str, Any] = {}
    scope = {"defaults": defaults, "__name__": __name__}
    exec(f"def __init__(self, {', '.join(parameters)}):\n {'; '.join(body)}", scope, made)  # noqa: S102
    return made["__init__"]


def _fields(value: object) -> tuple[str, ...]:
    return type(value).__match_args__  # type: ignore[attr-defined, no-any-return]


def _equal(self: Any, other: Any) -> Any:
    return self._values(self) == self._values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(self._values(self))


def _show(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in _fields(self))
    return f"{type(self).__qualname__}({fields})"
