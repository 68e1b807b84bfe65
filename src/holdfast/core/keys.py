"""Key names: what may name a lock, and the naming schemes of workflow engines.

    workflow:{id}    node:{workflow}:{node}    node:{workflow}:{parent}:{iteration}    resource:{type}:{id}

Builders escape ``:`` and ``%`` in the parts, so different parts never give the same key, and `parse`
gives back what was built. Any other ``type:…`` is a fine key too.
"""

from __future__ import annotations

import re

from holdfast.core.data import data
from holdfast.errors import InvalidKey

MAX_LENGTH = 255

# Control characters and line separators would break every log, terminal and wire they appear in;
# lone surrogates have no UTF-8 form.
FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NAMES = {
    ("workflow", 1): ("id",),
    ("node", 2): ("workflow", "node"),
    ("node", 3): ("workflow", "parent", "iteration"),
    ("resource", 2): ("type", "id"),
}


def validate(key: object) -> str:
    """Return *key* if it can name a lock, else raise `InvalidKey` with the reason."""
    if not isinstance(key, str):
        raise InvalidKey(key, f"is of type {type(key).__name__}; a key is a string")
    if not key:
        raise InvalidKey(key, "is empty")
    if len(key) > MAX_LENGTH:
        raise InvalidKey(key, f"has {len(key)} characters; {MAX_LENGTH} are allowed")
    if found := FORBIDDEN.search(key):
        raise InvalidKey(
            key, f"has the forbidden character U+{ord(found[0]):04X} at position {found.start()}"
        )
    return key


def workflow(id: object) -> str:
    """Return the key of a workflow instance: ``workflow:123``."""
    return _build("workflow", id)


def node(workflow: object, node: object) -> str:
    """Return the key of a node of a workflow: ``node:123:fetch-calendars``."""
    return _build("node", workflow, node)


def iteration(workflow: object, parent: object, iteration: int) -> str:
    """Return the key of one iteration of a loop node: ``node:123:delete-loop:5``."""
    return _build("node", workflow, parent, iteration)


def resource(type: object, id: object) -> str:
    """Return the key of a shared resource: ``resource:database:calendar_db``."""
    return _build("resource", type, id)


def operation(name: object, resource: object) -> str:
    """Return the key of an operation on a resource: ``pull:model-7b``."""
    if not str(name):
        raise InvalidKey(f":{resource}", "has an empty part")
    return _build(_escape(str(name)), resource)


@data
class ParsedKey:
    """A key taken apart. *fields* are named when the key follows one of the schemes above."""

    type: str | None
    parts: tuple[str, ...]
    fields: dict[str, str]


def parse(key: str) -> ParsedKey:
    """Take *key* apart at its colons."""
    type, *rest = validate(key).split(":")
    if not rest:
        return ParsedKey(None, (_unescape(type),), {})
    parts = tuple(map(_unescape, rest))
    names = _NAMES.get((type, len(parts)), ())
    return ParsedKey(_unescape(type), parts, dict(zip(names, parts, strict=bool(names))))


def type_prefix(type: str) -> str:
    """Return what the keys of *type* begin with."""
    return f"{_escape(type)}:"


def prefix_end(prefix: str) -> str | None:
    """Return the smallest string greater than all that begin with *prefix*; None if there is none.

    Code points sort as their UTF-8 bytes do, so this serves every store.
    """
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at]) + 1
        if 0xD800 <= code <= 0xDFFF:
            code = 0xE000
        if code <= 0x10FFFF:
            return prefix[:at] + chr(code)
    return None


def _build(type: str, *parts: object) -> str:
    texts = [str(part) for part in parts]
    if "" in texts:
        raise InvalidKey(f"{type}:{':'.join(texts)}", "has an empty part")
    return validate(":".join((type, *map(_escape, texts))))


def _escape(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


def _unescape(part: str) -> str:
    return part.replace("%3A", ":").replace("%25", "%")
