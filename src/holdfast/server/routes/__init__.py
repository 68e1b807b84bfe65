"""All routes of the server in one table: what they take, what they answer, and what a caller needs for them.

The application dispatches by it, the OpenAPI description is made from it, and the tests of rights walk it, so
that a route cannot be forgotten.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import unquote

from holdfast.core import keys
from holdfast.core.events import HISTORY_LEVELS
from holdfast.errors import InvalidKey, RequestRefused
from holdfast.server.routes.cluster import CLUSTER, INSTANCE
from holdfast.server.routes.locks import LOCKS
from holdfast.server.routes.route import Route
from holdfast.server.routes.standing import STANDING
from holdfast.server.shapes import OneOf

ROUTES: tuple[Route, ...] = (*LOCKS, *CLUSTER, *STANDING)
HISTORY = OneOf(HISTORY_LEVELS)

_BY_PATH: dict[str, dict[str, Route]] = {}
for _route in ROUTES:
    _BY_PATH.setdefault(_route.path, {})[_route.method] = _route
_PARAMETERS = tuple(
    sorted(
        {
            (before, name)
            for path in _BY_PATH
            if "{" in path
            for before, _, after in [path.partition("{")]
            for name, _, _ in [after.partition("}")]
        }
    )
)


class WrongMethod(RequestRefused):
    """The path is known, but not with this method."""

    def __init__(self, method: str, path: str, allowed: tuple[str, ...]) -> None:
        self._allowed = allowed
        super().__init__(405, f"{method} cannot be used on {path}; there is {', '.join(allowed)}")

    @property
    def allowed(self) -> str:
        """The methods that can be used."""
        return ", ".join(self._allowed)


@lru_cache(maxsize=4096)  # most keys are asked for again and again; refusals are not kept
def match(method: str, path: str) -> tuple[Route, str]:
    """Return the route of a request, and what its path names: a key, an id, a file."""
    named = ""
    methods = _BY_PATH.get(path)
    if methods is None:
        for before, name in _PARAMETERS:
            if path.startswith(before):
                segment, slash, rest = path[len(before) :].partition("/")
                methods = _BY_PATH.get(f"{before}{{{name}}}{slash}{rest}")
                if methods is not None:
                    named = _decode(segment, name)
                    path = f"{before}{{{name}}}{slash}{rest}"
                break
    if methods is None:
        raise RequestRefused(404, f"there is no {path[:100]!r} here; /openapi.json says what there is")
    route = methods.get("GET" if method == "HEAD" else method)
    if route is None:
        raise WrongMethod(method, path, tuple(sorted({*methods, *(("HEAD",) if "GET" in methods else ())})))
    return route, named


def _decode(segment: str, name: str) -> str:
    try:
        value = unquote(segment, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidKey(segment, "is not UTF-8, percent-encoded") from error
    if name == "instance":
        return INSTANCE.read(value, "the instance")
    return keys.validate(value) if name == "key" else value
