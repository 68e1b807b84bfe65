"""Which route of the table a request is for, by its method and path, and what its path names."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import unquote

from holdfast.core import keys
from holdfast.core.wire import ROUTES, Route
from holdfast.core.wire.work import INSTANCE
from holdfast.errors import InvalidKey, RequestRefused

_BY_PATH: dict[str, dict[str, Route]] = {}
for _route in ROUTES:
    _BY_PATH.setdefault(_route.path, {})[_route.method] = _route
_PARAMETERS = sorted({(route.path.partition("{")[0], route.parameter) for route in ROUTES if route.parameter})


class WrongMethod(RequestRefused):
    """The path is known, but not with this method."""

    def __init__(self, method: str, path: str, allowed: str) -> None:
        self._allowed = allowed
        super().__init__(405, f"{method} cannot be used on {path}; there is {allowed}")

    @property
    def allowed(self) -> str:
        """The methods that can be used."""
        return self._allowed


@lru_cache(maxsize=4096)  # most keys are asked for again and again; refusals are not kept
def match(method: str, path: str) -> tuple[Route, str]:
    """Return the route of a request, and what its path names: a key, an id, a file."""
    named = ""
    methods = _BY_PATH.get(path)
    if methods is None:
        for before, name in _PARAMETERS:
            if path.startswith(before):
                segment, slash, rest = _cut(path[len(before) :], name)
                methods = _BY_PATH.get(f"{before}{{{name}}}{slash}{rest}")
                if methods is not None:
                    named = _decode(segment, name)
                    path = f"{before}{{{name}}}{slash}{rest}"
                break
    if methods is None:
        raise RequestRefused(404, f"there is no {path[:100]!r} here; /openapi.json says what there is")
    route = methods.get("GET" if method == "HEAD" else method)
    if route is None:
        allowed = {*methods, "HEAD"} if "GET" in methods else set(methods)
        raise WrongMethod(method, path, ", ".join(sorted(allowed)))
    return route, named


def _cut(rest: str, name: str) -> tuple[str, str, str]:
    """Return what a path names, and what comes after it. A part of the page may be in a folder."""
    return (rest, "", "") if name == "file" else rest.partition("/")


def _decode(segment: str, name: str) -> str:
    try:
        value = unquote(segment, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidKey(segment, "is not UTF-8, percent-encoded") from error
    if name == "instance":
        return INSTANCE.read(value, "the instance")
    return keys.validate(value) if name == "key" else value
