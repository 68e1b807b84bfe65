"""The description of the HTTP API, made from the table of routes and from the answers' own definitions."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from holdfast import __version__, errors
from holdfast.core import wire
from holdfast.core.access import AccessToken
from holdfast.core.cluster import WorkCount
from holdfast.core.events import Event
from holdfast.core.wire import ROUTES, Route
from holdfast.core.wire.fields import Fields
from holdfast.core.wire.route import ADDRESS, LONGEST_OWN
from holdfast.core.wire.shapes import Json, Key
from holdfast.core.wire.system import TOKEN_ID
from holdfast.core.wire.work import INSTANCE

OWN_NAMES = ("owner", "by", "name")

_EVENT_STREAM = "text/event-stream"
_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null", dict: "object"}
_PLAIN: dict[Any, Json] = {kind: {"type": name} for kind, name in _TYPES.items()}


def _object(properties: Json, required: Iterable[str] | None = None, **more: Any) -> Json:
    """Return the schema of an object. All that it has is required, unless it says what."""
    needed = list(properties if required is None else required)
    return {"type": "object", **more, "properties": properties, "required": needed}


def _plain(**kinds: type) -> Json:
    return {name: _PLAIN[kind] for name, kind in kinds.items()}


# The answers that are not those of a store; those that are a number of things, by what these are.
_ITEMS: dict[str, type] = {"events": Event, "access_tokens": AccessToken, "work_counts": WorkCount}
_CLIENT = {
    **_plain(instance=str, host=str, pid=int, principal=str),
    "address": {"type": "string", "pattern": f"^{ADDRESS}$"},
    **_plain(connected_for=float),
}
_OWN: dict[str, Json] = {
    "clients": {"items": {"type": "array", "items": _object(_CLIENT)}},
    "server": {
        **_plain(version=str, instance=str, store=dict, authentication=bool, principal=dict),
        **_plain(history=str, limits=dict, time=float, draining=bool),
    },
    "health": {"status": {"enum": ["alive", "ready", "not ready"]}},
}
_PROBLEMS = {
    400: "Not to be understood: no JSON, no query, no HTTP.",
    401: "Nobody, or an access token that is not valid.",
    403: "No right to do this.",
    404: "There is no such thing.",
    405: "Not with this method.",
    406: "Not in any form that is accepted.",
    408: "It took too long to arrive.",
    409: "The lock says no: `error` says which, `because` is the answer.",
    410: "The instance is not alive, or takes no more work: `because` is the answer.",
    413: "Too large.",
    415: "Bodies are application/json.",
    422: "A value that cannot be: `detail` says which, and what it must be.",
    429: "Too much, or too often.",
    431: "Too many headers.",
    500: "A mistake of the server's.",
    503: "The store does not answer, or the server is going away. Ask again with the same attempt.",
}
_EVERYWHERE = (400, 401, 403, 405, 408, 413, 415, 422, 429, 431, 500, 503)
_PUBLIC = tuple(status for status in _EVERYWHERE if status not in (401, 415))


def describe(*, authentication: bool = True, routes: Iterable[Route] = ROUTES) -> Json:
    """Return the description, in OpenAPI 3.1, of a server that asks callers who they are, or does not."""
    schemas: dict[str, Json] = {}
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, authentication)
    schemas["Problem"] = _problem()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "holdfast",
            "version": __version__,
            "description": "Locks with leases, fencing tokens and fair queues over HTTP."
            " Durations are seconds; times are seconds since the epoch by the store's clock.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"access_token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schemas: dict[str, Json], authentication: bool) -> Json:
    needs = f"\n\nNeeds the right to `{route.verb}`: {_SCOPES[route.scope]}." if route.verb else ""
    found: Json = {
        "operationId": route.name,
        "summary": route.about,
        "description": f"{route.about}{needs}",
        "responses": _responses(route, schemas),
        "security": [{"access_token": []}] if authentication and not route.public else [],
    }
    if parameters := _parameters(route):
        found["parameters"] = parameters
    if route.body is not None:
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _body(route, route.body, authentication)}},
        }
    return found


_SCOPES = {
    "key": "on the lock that the path names",
    "keys": "on every lock that the body names, or nothing is done",
    "instance": "on `instance:` and the instance's id",
    "types": "on `instance:` and the instance's id, and on everything that begins with a type and a colon",
    "visible": "the answer has only locks that the caller has it for",
    "anything": "on anything",
    "everywhere": "on all locks",
}


def _body(route: Route, body: Fields, authentication: bool) -> Json:
    schema = _without_now(body.schema())
    for name in schema["properties"].keys() & (OWN_NAMES if authentication else ()):
        own = schema["properties"][name]
        own["maxLength"] = min(own["maxLength"], LONGEST_OWN)
    return {**schema, **route.conditions}


def _without_now(schema: Json) -> Json:
    """Leave out what is only for tests of the server itself."""
    properties = {name: each for name, each in schema["properties"].items() if name != "now"}
    return {**schema, "properties": properties}


def _parameters(route: Route) -> list[Json]:
    found: list[Json] = []
    if name := route.parameter:
        schema = {
            "key": Key().schema(),
            "id": {"type": "string", "pattern": f"^{TOKEN_ID}$"},
            "instance": INSTANCE.schema(),
            "file": {"type": "string", "pattern": "^[a-z.-]+$"},
        }[name]
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    query = _without_now(route.query.schema())
    for name, schema in query["properties"].items():
        found.append({"name": name, "in": "query", "required": False, "schema": schema})
    return found


def _responses(route: Route, schemas: dict[str, Json]) -> Json:
    found: dict[str, Json] = {}
    for status in dict.fromkeys(status for status, _ in route.answers):
        names = [name for each, name in route.answers if each == status]
        found[str(status)] = {"description": ", ".join(names), "content": _content(names, schemas)}
    if route.streams:
        answer = found.setdefault("200", {"description": "an event stream", "content": {}})
        answer["content"][_EVENT_STREAM] = {"schema": {"type": "string"}}
    problems = {*(_PUBLIC if route.public else _EVERYWHERE), *route.problems}
    if route.streams and not route.answers:
        problems.add(406)
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for status in sorted(problems):
        found.setdefault(str(status), {"description": _PROBLEMS[status], "content": content})
    return found


def _content(names: list[str], schemas: dict[str, Json]) -> Json:
    if any("/" in name for name in names):  # a media type, and no answer in JSON
        return {names[0]: {"schema": {"type": "string"}}}
    if names == ["openapi"]:
        return {"application/json": {"schema": {"type": "object"}}}
    each = [_answer(name, schemas) for name in names]
    return {"application/json": {"schema": each[0] if len(each) == 1 else {"oneOf": each}}}


def _answer(name: str, schemas: dict[str, Json]) -> Json:
    title = f"{''.join(part.capitalize() for part in name.split('_'))}Answer"
    tag = {"answer": {"const": name}}
    if name in _ITEMS:
        items = {"type": "array", "items": _schema_of(_ITEMS[name], schemas)}
        schemas[title] = _object({**tag, "items": items})
    elif name in _OWN:
        schemas[title] = _object({**tag, **_OWN[name]})
    else:
        kind = wire.ANSWERS[name]
        _schema_of(kind, schemas)
        plain = schemas[kind.__name__]
        schemas[title] = {**plain, **_object({**tag, **plain["properties"]})}
    return {"$ref": f"#/components/schemas/{title}"}


def _schema_of(hint: Any, schemas: dict[str, Json]) -> Json:
    """Return the schema of a type, and keep those of the classes it is made of."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple:
        return {"type": "array", "items": _schema_of(args[0], schemas)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema_of(each, schemas) for each in args]}
    name: str = hint.__name__
    if name not in schemas:
        schemas[name] = {}  # it may be inside itself
        hints = get_type_hints(hint)
        properties = {each: _schema_of(hints[each], schemas) for each in hint.__match_args__}
        schemas[name] = _object(properties, description=(hint.__doc__ or "").partition("\n")[0])
    return {"$ref": f"#/components/schemas/{name}"}


def _problem() -> Json:
    required = {
        **_plain(type=str, title=str, status=int, detail=str),
        "error": {"enum": sorted(kind.__name__ for kind in errors.CODES)},
    }
    because = {"type": "object", "description": "The answer that the error is raised for."}
    about = "What went wrong (RFC 9457), with the name and the fields of the Python error."
    return _object({**required, "because": because}, required, description=about)
