"""The routes of instances and their work."""

from __future__ import annotations

from typing import get_args

from holdfast.core.cluster import LARGEST_DATA, MOST_CLAIMED, MOST_OFFERED, WORK_STATES, Ending
from holdfast.core.settings import MAX_TTL
from holdfast.server.routes.route import (
    ATTEMPT,
    BY,
    CLIENT,
    LISTED,
    NOW,
    TIME,
    TOKEN,
    Route,
    fields,
    may,
    must,
)
from holdfast.server.shapes import Flag, JsonText, Key, Many, Number, OneOf, Text, Whole, WorkType

# What somebody may call an instance. No slash: what stands before one is the name of an access token.
_ID = "[0-9A-Za-z_:@-][0-9A-Za-z_.:@-]{0,127}"
LONGEST_ID = 128
INSTANCE = Text(LONGEST_ID, 1, _ID)
ANY_INSTANCE = Text(255, 0)  # also another principal's, or none
MOST_TYPES = 100  # in one claim
LARGEST_CAPACITY = 1_000_000

_TTL = Number(0, MAX_TTL, above=True)
_DATA = JsonText(LARGEST_DATA)

JOIN = fields(
    id=must(INSTANCE, "Its id, which nobody ever had before: make it up, 8 random bytes or more."),
    name=may(Text(), about="What people know it by; its id if it has none."),
    capacity=may(Whole(1, LARGEST_CAPACITY), 8, "How much work it can have at a time."),
    ttl=may(_TTL, 90.0, "How long it counts as alive without a heartbeat, in seconds."),
    version=may(Text(255, 0), "", "Which release of your program it runs."),
    client=may(CLIENT),
    now=NOW,
)
HEARTBEAT = fields(
    ttl=may(_TTL, 90.0, "How long it counts as alive from now on."),
    drain=may(Flag(), False, "It takes no more work, for good."),
    client=may(CLIENT),
    now=NOW,
)
CLAIM = fields(
    number=must(Whole(1), "1 for its first claim, one more for each; the same again if an answer was lost."),
    attempt=must(Text(250), "A secret: that of the first work is this and .0, of the next .1, and so on."),
    types=must(Many(WorkType(), MOST_TYPES), "What keys begin with, up to their first colon."),
    limit=may(Whole(1, MOST_CLAIMED), 1, "How much at most."),
    ttl=may(_TTL, 30.0, "How long its leases hold without renewal."),
    spread=may(Number(0, 3600), 0.0, "How long it leaves fresh work to others when it is full."),
    client=may(CLIENT),
    now=NOW,
)
WORK = fields(
    key=must(Key()),
    data=may(_DATA, "null", "What there is to know for whoever does it: JSON, as text."),
    max_tries=may(
        Whole(0, 2**31 - 1), 0, "How often it is tried before it has failed for good; 0: no limit."
    ),
    delay=may(Number(0, MAX_TTL), 0.0, "How long until it may be claimed."),
    at=may(TIME, about="Or from when on, by the store's clock."),
)
OFFER = fields(
    works=must(Many(WORK, MOST_OFFERED)),
    again=may(Flag(), False, "Also what has completed or failed, as new."),
    now=NOW,
)
ASSIGN = fields(
    attempt=ATTEMPT,
    id=may(INSTANCE, about="The instance that it goes to; without one only the lease says who has it."),
    owner=may(Text(), about="Who asks; the instance, if nobody is said."),
    ttl=may(_TTL, 30.0, "How long its lease holds without renewal."),
    data=may(_DATA, about="In place of what it was offered with: JSON, as text."),
    due=may(Flag(), False, "Not before its time."),
    again=may(Flag(), False, "Also if it has completed or failed."),
    client=may(CLIENT),
    now=NOW,
)
FINISH = fields(
    attempt=ATTEMPT,
    token=TOKEN,
    ending=must(OneOf(get_args(Ending))),
    text=may(
        Text(LARGEST_DATA, 0, multiline=True),
        "",
        "The result as JSON if it has completed, else what went wrong.",
    ),
    retry=may(Number(0, MAX_TTL), about="Failed: offer it again after so many seconds, if it may be tried."),
    at=may(TIME, about="Offer it again at this time, by the store's clock."),
    data=may(_DATA, about="In place of the data that it has."),
    retire=may(Flag(), True, "Remember the attempt, so that a late copy of its assign takes nothing."),
    now=NOW,
)
# What is no JSON would be a result that nobody can read. For JSON Schema: `working` reads it so.
RESULT_IS_JSON = {
    "if": {"properties": {"ending": {"const": "completed"}}, "required": ["ending"]},
    "then": {"properties": {"text": {"type": "string", "format": "json"}}},
}

_INSTANCE = "/v1/instances/{instance}"
_WORK = "/v1/work/{key}"

CLUSTER: tuple[Route, ...] = (
    Route(
        "join",
        "POST",
        "/v1/instances",
        "Become an instance, which can be given work.",
        ((200, "beat"),),
        verb="acquire",
        scope="instance",
        body=JOIN,
        problems=(410,),
    ),
    Route(
        "instances",
        "GET",
        "/v1/instances",
        "See who has joined, also who has left or died of late.",
        ((200, "instance_page"),),
        verb="observe",
        scope="visible",
        query=fields(
            after=may(Text(255, 0), "", "The id to go on after, of the page before."),
            limit=may(LISTED, 100),
            now=NOW,
        ),
    ),
    Route(
        "heartbeat",
        "POST",
        f"{_INSTANCE}/heartbeat",
        "Go on being an instance.",
        ((200, "beat"),),
        verb="acquire",
        scope="instance",
        body=HEARTBEAT,
        problems=(410,),
    ),
    Route(
        "leave",
        "POST",
        f"{_INSTANCE}/leave",
        "Stop being an instance, and return its work.",
        ((200, "beat"),),
        verb="acquire",
        scope="instance",
        body=fields(now=NOW),
    ),
    Route(
        "claim",
        "POST",
        f"{_INSTANCE}/claim",
        "Take work that is offered, with its locks.",
        ((200, "claimed"),),
        verb="acquire",
        scope="types",
        body=CLAIM,
        problems=(410,),
    ),
    Route(
        "offer",
        "POST",
        "/v1/work",
        "Have work done by whichever instance claims it.",
        ((200, "offered"),),
        verb="acquire",
        scope="keys",
        body=OFFER,
    ),
    Route(
        "list_work",
        "GET",
        "/v1/work",
        "Look at work, a page at a time.",
        ((200, "work_page"),),
        verb="observe",
        scope="visible",
        query=fields(
            prefix=may(Key(empty=True), ""),
            state=may(OneOf(WORK_STATES)),
            instance=may(ANY_INSTANCE, about="That has it, or had it last; empty: what nobody ever had."),
            after=may(Key(empty=True), "", "The last key of the page before."),
            limit=may(LISTED, 100),
            now=NOW,
        ),
    ),
    Route(
        "count_work",
        "GET",
        "/v1/work-counts",
        "Count the work that is not completed, by type.",
        ((200, "work_counts"),),
        verb="observe",
        scope="visible",
        query=fields(now=NOW),
    ),
    Route(
        "inspect_work",
        "GET",
        _WORK,
        "Look at one piece of work.",
        ((200, "work_view"),),
        verb="observe",
        scope="key",
        query=fields(now=NOW),
        problems=(404,),
    ),
    Route(
        "assign",
        "POST",
        f"{_WORK}/assign",
        "Take one piece of work, whether it was offered or not.",
        ((200, "assigned"),),
        verb="acquire",
        scope="key",
        body=ASSIGN,
        problems=(409, 410),
    ),
    Route(
        "finish",
        "POST",
        f"{_WORK}/finish",
        "End an assignment: it has completed or failed, or is given back.",
        ((200, "finished"),),
        verb="acquire",
        scope="key",
        body=FINISH,
        problems=(409,),
    ),
    Route(
        "forget",
        "DELETE",
        _WORK,
        "Forget a piece of work that is not assigned.",
        ((200, "ended"),),
        verb="break",
        scope="key",
        query=fields(by=BY, now=NOW),
        problems=(404, 409),
    ),
)
