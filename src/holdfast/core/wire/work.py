"""The routes of instances and their work."""

from __future__ import annotations

from typing import get_args

from holdfast.core import cluster as c
from holdfast.core.settings import MAX_TTL
from holdfast.core.wire.fields import Fields, may, must, seldom
from holdfast.core.wire.route import ATTEMPT, BY, COUNT, LISTED, TIME, TOKEN, Route, change, look
from holdfast.core.wire.shapes import Flag, JsonText, Key, Many, Number, OneOf, Text, Whole, WorkType

# What somebody may call an instance. No slash: what stands before one is the name of an access token.
_ID = "[0-9A-Za-z_:@-][0-9A-Za-z_.:@-]{0,127}"
LONGEST_ID = 128
INSTANCE = Text(LONGEST_ID, 1, _ID)
ANY_INSTANCE = Text(255, 0)  # also another principal's, or none
MOST_TYPES = 100  # in one claim
LARGEST_CAPACITY = 1_000_000

_TTL = Number(0, MAX_TTL, above=True)
_LATER = Number(0, MAX_TTL)
_DATA = JsonText(c.LARGEST_DATA)
_TEXT = Text(c.LARGEST_DATA, 0, multiline=True)

JOIN = {
    "id": must(INSTANCE, "Its id, which nobody ever had before: make it up, 8 random bytes or more."),
    "name": may(Text(), about="What people know it by; its id if it has none."),
    "capacity": may(Whole(1, LARGEST_CAPACITY), 8, "How much work it can have at a time."),
    "ttl": may(_TTL, 90.0, "How long it counts as alive without a heartbeat, in seconds."),
    "version": may(Text(255, 0), "", "Which release of your program it runs."),
}
HEARTBEAT = {
    "ttl": may(_TTL, 90.0, "How long it counts as alive from now on."),
    "drain": may(Flag(), False, "It takes no more work, for good."),
}
CLAIM = {
    "number": must(
        Whole(1), "1 for its first claim, one more for each; the same again if an answer was lost."
    ),
    "attempt": must(Text(250), "A secret: that of the first work is this and .0, of the next .1, and so on."),
    "types": must(Many(WorkType(), MOST_TYPES), "What keys begin with, up to their first colon."),
    "limit": may(Whole(1, c.MOST_CLAIMED), 1, "How much at most."),
    "ttl": may(_TTL, 30.0, "How long its leases hold without renewal."),
    "spread": may(Number(0, 3600), 0.0, "How long it leaves fresh work to others when it is full."),
}
# Of most work that is offered only the key is said: there may be much in one body.
WORK = {
    "key": must(Key()),
    "data": seldom(_DATA, "null", "What there is to know for whoever does it: JSON, as text."),
    "max_tries": seldom(COUNT, 0, "How often it is tried before it has failed for good; 0: no limit."),
    "delay": seldom(_LATER, 0.0, "How long until it may be claimed."),
    "at": may(TIME, about="Or from when on, by the store's clock."),
}
OFFER = {
    "works": must(Many(Fields.of(c.OfferedWork, WORK), c.MOST_OFFERED)),
    "again": may(Flag(), False, "Also what has completed or failed, as new."),
}
ASSIGN = {
    "attempt": ATTEMPT,
    "id": seldom(INSTANCE, None, "The instance that it goes to; without one only the lease says who has it."),
    "owner": may(Text(), about="Who asks; the instance, if nobody is said."),
    "ttl": may(_TTL, 30.0, "How long its lease holds without renewal."),
    "data": may(_DATA, about="In place of what it was offered with: JSON, as text."),
    "due": may(Flag(), False, "Not before its time."),
    "again": may(Flag(), False, "Also if it has completed or failed."),
}
FINISH = {
    "attempt": ATTEMPT,
    "token": TOKEN,
    "ending": must(OneOf(get_args(c.Ending))),
    "text": may(_TEXT, "", "The result as JSON if it has completed, else what went wrong."),
    "retry": may(_LATER, about="Failed: offer it again after so many seconds, if it may be tried."),
    "at": may(TIME, about="Offer it again at this time, by the store's clock."),
    "data": may(_DATA, about="In place of the data that it has."),
    "retire": may(Flag(), True, "Remember the attempt, so that a late copy of its assign takes nothing."),
}
# What is not JSON would be a result that nobody can read; the handler reads it so.
RESULT_IS_JSON = {
    "if": {"properties": {"ending": {"const": "completed"}}, "required": ["ending"]},
    "then": {"properties": {"text": {"type": "string", "format": "json"}}},
}

LIST_WORK = {
    "prefix": may(Key(empty=True), ""),
    "state": may(OneOf(c.WORK_STATES)),
    "instance": may(
        ANY_INSTANCE, about="That has it, or had it last; empty: what nobody ever had.", blank=True
    ),
    "after": may(Key(empty=True), "", "The last key of the page before."),
    "limit": may(LISTED, 100),
}
LIST_INSTANCES = {
    "after": may(Text(255, 0), "", "The id to go on after, of the page before."),
    "limit": may(LISTED, 100),
}

_INSTANCE = "/v1/instances/{instance}"
_WORK = "/v1/work/{key}"

WORK_ROUTES: tuple[Route, ...] = (
    change(
        *("join", "/v1/instances", c.Join, "beat", "Become an instance, which can be given work.", JOIN),
        scope="instance",
        problems=(410,),
    ),
    look(
        *("instances", "/v1/instances", c.ListInstances, "instance_page"),
        "See who has joined, also who has left or died of late.",
        LIST_INSTANCES,
    ),
    change(
        "heartbeat", _INSTANCE, c.Heartbeat, "beat", "Go on being an instance.", HEARTBEAT, problems=(410,)
    ),
    change("leave", _INSTANCE, c.Leave, "beat", "Stop being an instance, and return its work."),
    change(
        *("claim", _INSTANCE, c.Claim, "claimed", "Take work that is offered, with its locks.", CLAIM),
        scope="types",
        problems=(410,),
    ),
    change(
        *("offer", "/v1/work", c.Offer, "offered", "Have work done by whichever instance claims it.", OFFER),
        scope="keys",
        events=False,
    ),
    look("list_work", "/v1/work", c.ListWork, "work_page", "Look at work, a page at a time.", LIST_WORK),
    look(
        *("count_work", "/v1/work-counts", c.CountWork, "work_counts"),
        "Count the work that is not completed, by type.",
    ),
    look("inspect_work", _WORK, c.InspectWork, "work_view", "Look at one piece of work.", problems=(404,)),
    change(
        *("assign", _WORK, c.Assign, "assigned", "Take one piece of work, whether it was offered or not."),
        ASSIGN,
        problems=(409, 410),
    ),
    change(
        *("finish", _WORK, c.Finish, "finished"),
        "End an assignment: it has completed or failed, or is given back.",
        FINISH,
        conditions=RESULT_IS_JSON,
        problems=(409,),
    ),
    Route(
        *("forget", "DELETE", _WORK, "Forget a piece of work that is not assigned.", "ended", c.Forget),
        {"by": BY},
        verb="break",
        events=True,
        problems=(404, 409),
    ),
)
