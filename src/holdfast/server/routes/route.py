"""What a route is, and what the bodies and queries of many have in common."""

from __future__ import annotations

from typing import Literal

from holdfast.core.access import LONGEST_PRINCIPAL, Verb
from holdfast.core.data import data
from holdfast.core.settings import MAX_TTL
from holdfast.server.shapes import REQUIRED, Field, Fields, Number, Shape, Text, Whole

# On which keys a caller needs the verb of a route:
#   key         on the one that the path names
#   keys        on each that the body names
#   instance    on that of the instance which the path or the body names
#   types       on that, and on all keys of each type that the body names
#   visible     on some: the answer has only those
#   anything    on some, whichever
#   everywhere  on all there may be
Scope = Literal["key", "keys", "instance", "types", "visible", "anything", "everywhere"]

ADDRESS = "(?:[0-9A-Za-z_-]{1,64}(?:/[0-9A-Za-z_-]{1,64})?)?"
# How long a name may be that somebody with an access token gives itself: the token's own stands before it.
LONGEST_OWN = 255 - LONGEST_PRINCIPAL - len("/")
LONGEST_PATIENCE = MAX_TTL  # a dead waiter is in the way of others for no longer
MOST_LISTED = 1000


@data
class Route:
    """One method of one path. Without *verb* whoever is let in may use it; *public*: everybody."""

    name: str
    method: str
    path: str
    about: str
    answers: tuple[tuple[int, str], ...]  # status → the answer's name
    verb: Verb | None = None
    scope: Scope = "anything"
    query: Fields = Fields({})
    body: Fields | None = None
    public: bool = False
    streams: bool = False  # it may answer with an event stream
    problems: tuple[int, ...] = ()  # statuses of its own, beside those that all have


def fields(**members: Field) -> Fields:
    """Return an object with these members."""
    return Fields(members)


def must(shape: Shape, about: str = "") -> Field:
    """Return a member that has to be there."""
    return Field(shape, REQUIRED, about)


def may(shape: Shape, default: object = None, about: str = "") -> Field:
    """Return a member that need not be said."""
    return Field(shape, default, about)


TIME = Number(0, 1e11)
NOW = may(TIME, about="For tests of the server itself; refused otherwise.")
ID = Text(300)  # an owner's name and a little more
ATTEMPT = must(ID, "The attempt's id: whoever knows it can release what it holds.")
TOKEN = must(Whole(), "The lease's fencing token.")
BY = may(Text(), about="Who does it, for the history.")
LISTED = Whole(1, MOST_LISTED)

CLIENT = fields(
    instance=may(Text(129, 0, ADDRESS), "", "Where its signals go: the address from /v1/signals."),
    host=may(Text(), about="Told to whoever has to wait."),
    pid=may(Whole(0, 2**31 - 1), 0),
)
