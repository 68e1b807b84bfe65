"""What a route is: one request on the wire, and what it takes to be allowed to ask it."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Literal

from holdfast.core.access import LONGEST_PRINCIPAL, Verb
from holdfast.core.data import replace
from holdfast.core.requests import Client
from holdfast.core.wire.fields import Field, Fields, complete, may, must
from holdfast.core.wire.shapes import Json, Number, Text, Whole

# On which keys a caller needs the verb of a route:
#   key         on the one that the path names
#   keys        on each that the body names
#   instance    on that of the instance which the path or the body names
#   types       on that, and on all keys of each type that the body names
#   visible     on some: the answer has only those
#   anything    on some, whichever
#   everywhere  on all there may be
Scope = Literal["key", "keys", "instance", "types", "visible", "anything", "everywhere"]

Members = Mapping[str, Field] | None
Answers = str | tuple[str | tuple[int, str], ...]  # their names, with the status unless it is 200

ADDRESS = "(?:[0-9A-Za-z_-]{1,64}(?:/[0-9A-Za-z_-]{1,64})?)?"
# How long a name may be that somebody with an access token gives itself: the token's own stands before it.
LONGEST_OWN = 255 - LONGEST_PRINCIPAL - len("/")
MOST_LISTED = 1000

TIME = Number(0, 1e11)
NOW = may(TIME, about="For tests of the server itself; refused otherwise.")
ID = Text(300)  # an owner's name and a little more
ATTEMPT = must(ID, "The attempt's id: whoever knows it can release what it holds.")
TOKEN = must(Whole(), "The lease's fencing token.")
BY = may(Text(), about="Who does it, for the history.")
LISTED = Whole(1, MOST_LISTED)
COUNT = Whole(0, 2**31 - 1)  # as much as every store can keep
CLIENT = Fields.of(
    Client,
    {
        "instance": may(Text(129, 0, ADDRESS), "", "Where its signals go: the address from /v1/signals."),
        "host": may(Text(), about="Told to whoever has to wait."),
        "pid": may(COUNT, 0),
    },
)
_KNOWN = {"client": may(CLIENT), "now": NOW}
_SCOPES: dict[str, Scope] = {"key": "key", "instance": "instance"}  # by what a path names
_NAMED = {"key": "key", "instance": "id", "id": "id"}  # what a path names → the attribute of the request


class Route:
    """One method of one path, and the request that is asked there, if it is one of a store.

    *members* are those of its body, if it is a POST, otherwise of its query. What is not listed there of the
    request is as its type says. *parts* are attributes whose own members are in the body, one by one; what is
    *left_out* cannot be said. *conditions*, in JSON Schema, are what members have to do with each other.

    Without *verb* everybody who is let in may use it; *public*: everybody. Without *scope* it is what
    its path names. *streams*: it may answer with an event stream. *events*: it may have made some. *problems*
    are statuses of its own, beside those that all have.
    """

    def __init__(
        self,
        name: str,
        method: str,
        path: str,
        about: str,
        answers: Answers = (),
        request: type | None = None,
        members: Members = None,
        *,
        parts: Mapping[str, type] | None = None,
        left_out: tuple[str, ...] = (),
        conditions: Json | None = None,
        verb: Verb | None = None,
        scope: Scope | None = None,
        public: bool = False,
        streams: bool = False,
        events: bool = False,
        problems: tuple[int, ...] = (),
    ) -> None:
        self.name = name
        self.method = method
        self.path = path
        self.about = about
        answers = (answers,) if isinstance(answers, str) else answers
        self.answers = tuple((200, each) if isinstance(each, str) else each for each in answers)
        self.request = request
        self.parameter = path.partition("{")[2].partition("}")[0]
        self.conditions = conditions or {}
        self.verb = verb
        self.scope: Scope = scope or _SCOPES.get(self.parameter, "anything")
        self.public = public
        self.streams = streams
        self.events = events
        self.problems = problems
        self.attribute = _NAMED.get(self.parameter)
        parts = parts or {}
        if request is None:
            self.members = Fields(members or {})
        else:
            if self.attribute is not None:
                left_out = (*left_out, self.attribute)
            self.members = _members(request, members or {}, parts, left_out)
        self.body = self.members if method == "POST" else None  # what it may have; None: there is none
        self._parts = [_Part(part, kind, self.members.fields) for part, kind in parts.items()]

    @property
    def query(self) -> Fields:
        """What its query may have."""
        return _NOTHING if self.method == "POST" else self.members

    def make(self, named: str, given: Json, **known: Any) -> Any:
        """Return the request that was asked for; what is *known* counts more than what was said."""
        if self.attribute is not None:
            known.setdefault(self.attribute, named)
        for part in self._parts:
            known[part.name] = part.make(given)
        return self.members.make_with(given, known)


class _Part:
    """An attribute of a request whose own members are in the body, one by one."""

    def __init__(self, name: str, kind: type, fields: Mapping[str, Field]) -> None:
        inside = _inside(fields, name)
        self.name = name
        self._kind = kind
        self._attributes = tuple(attribute for _, attribute in inside)
        self._get = itemgetter(*(member for member, _ in inside))
        self._usual = kind()
        self._usual_values = tuple(getattr(self._usual, attribute) for attribute in self._attributes)

    def make(self, given: Json) -> Any:
        """Return what the body says of it: nearly always the usual, of which one is enough."""
        values = self._get(given)
        if values == self._usual_values:
            return self._usual
        return self._kind(**dict(zip(self._attributes, values, strict=True)))


def look(
    name: str, path: str, request: type | None, answer: str, about: str, members: Members = None, **more: Any
) -> Route:
    """Return the route of what only looks: at what the path names, or at all that may be seen."""
    how = {"verb": "observe", "scope": None if "{" in path else "visible", **more}
    return Route(name, "GET", path, about, answer, request, members, **how)


def change(
    name: str, path: str, request: type, answers: Answers, about: str, members: Members = None, **more: Any
) -> Route:
    """Return the route of what changes something. After what a path names, it says what is done to that."""
    path = f"{path}/{name}" if path.endswith("}") else path
    return Route(
        name, "POST", path, about, answers, request, members, **{"verb": "acquire", "events": True, **more}
    )


_NOTHING = Fields({})


def _members(
    kind: type, listed: Mapping[str, Field], parts: Mapping[str, type], left_out: tuple[str, ...]
) -> Fields:
    """Return the members of a body or a query that says what a request of this *kind* has."""
    members = dict(listed)
    for part, its_kind in parts.items():
        known = [name for _, name in _inside(listed, part)]
        for name, field in complete(its_kind, {}, {}, known).items():
            members[name] = replace(field, attribute=f"{part}.{name}")
    return Fields(complete(kind, members, _KNOWN, (*left_out, *parts)), kind)


def _inside(members: Mapping[str, Field], part: str) -> list[tuple[str, str]]:
    """Return those members that are attributes of *part* of a request, with the attributes' names."""
    found = [(name, (field.attribute or "").partition(".")) for name, field in members.items()]
    return [(name, attribute) for name, (first, _, attribute) in found if first == part and attribute]
