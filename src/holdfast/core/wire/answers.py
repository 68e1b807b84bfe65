"""Answers as JSON: an object says which it is in ``answer``, and has the fields of the answer.

Which answers there are is what the requests' own classes say.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, ForwardRef, get_args, get_origin, get_type_hints

from holdfast.core.data import as_dict
from holdfast.core.requests import Request, Watch
from holdfast.core.wire.ask import BY_REQUEST
from holdfast.core.wire.shapes import Json


def _answer_to(kind: type) -> Any:
    (said,) = get_args(kind.__orig_bases__[0])  # type: ignore[attr-defined]
    if isinstance(said, ForwardRef):
        holder = type("holder", (), {"__annotations__": {"answer": said}})
        return get_type_hints(holder, vars(sys.modules[kind.__module__]))["answer"]
    return said


def _choices(hint: Any) -> tuple[type, ...]:
    if get_origin(hint) is tuple:
        return (tuple,)
    return (hint,) if isinstance(hint, type) else get_args(hint)


def _name(kind: type) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


_HINTS = {kind: _answer_to(kind) for kind in (*BY_REQUEST, Watch)}
# What each request can be answered with, as its class says. An answer to something else would be believed.
POSSIBLE: dict[type, tuple[type, ...]] = {kind: _choices(hint) for kind, hint in _HINTS.items()}
# What is answered with a number of things, and nothing else.
_ITEMS: dict[type, type] = {
    kind: get_args(hint)[0] for kind, hint in _HINTS.items() if get_origin(hint) is tuple
}
ANSWERS: dict[str, type] = {
    _name(kind): kind for kinds in POSSIBLE.values() for kind in kinds if kind not in (tuple, type(None))
}
_NAMES = {kind: name for name, kind in ANSWERS.items()}


@cache
def inside(kind: type) -> dict[str, Callable[[Any], Any]]:
    """Return how the values of *kind* are read that are not plain ones."""
    readers = {name: _reader(hint) for name, hint in get_type_hints(kind).items()}
    return {name: read for name, read in readers.items() if read is not None}


def _reader(hint: Any) -> Callable[[Any], Any] | None:
    kind = next((each for each in (hint, *get_args(hint)) if hasattr(each, "_values")), None)
    if get_origin(hint) is tuple:
        return tuple if kind is None else _many(kind)
    return None if kind is None else lambda value: None if value is None else _read(kind, value)


def _many(kind: type) -> Callable[[Any], Any]:
    return lambda values: tuple(_read(kind, value) for value in values)


def answer_name(answer: Any) -> str:
    """Return what an answer is called in JSON."""
    return _NAMES[type(answer)]


def answer_to_json(answer: Any) -> Json:
    """Return an answer as JSON."""
    said: Json = {"answer": answer_name(answer)}
    said.update(as_dict(answer))
    return said


def answer_from_json(request: Request[Any], body: Json) -> Any:
    """Return the answer to *request* that a server has sent; `ValueError` if it makes no sense."""
    try:
        if kind := _ITEMS.get(type(request)):
            return _many(kind)(body["items"])
        if body["answer"] == "nothing":
            return None
        return _read(ANSWERS[body["answer"]], body)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no answer to {type(request).__name__}: {body!r:.200}") from error


def _read(kind: type, values: Json) -> Any:
    """Make *kind* of its fields. Others are left out: a newer server may say more."""
    readers = inside(kind)
    names: Iterable[str] = kind.__match_args__  # type: ignore[attr-defined]
    fields = {name: values[name] for name in names if name in values}
    for name in readers.keys() & fields.keys():
        fields[name] = readers[name](fields[name])
    return kind(**fields)
