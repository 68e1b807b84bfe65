"""The wire: every request can be read back from what is sent, every answer and error from its JSON."""

import inspect
import json
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from holdfast import errors
from holdfast.core import access, wire
from holdfast.core import cluster as c
from holdfast.core import requests as r
from holdfast.core.data import as_dict, data, replace
from holdfast.core.events import Event
from holdfast.core.family import Failure, Link, Mode, Outcome, Terms
from holdfast.core.wire import ROUTES, Asked
from holdfast.core.wire.ask import BY_REQUEST
from holdfast.core.wire.fields import Fields, may, read_body
from holdfast.core.wire.shapes import Many, OneOf, Shape, Text, Whole
from holdfast.server.openapi import describe
from holdfast.stores.base import READS
from tests.unit.test_errors import EXAMPLES as ERRORS

# As callers know them: the name of each of the terms in a body.
TERMS = {
    name: field.attribute.removeprefix("terms.")
    for name, field in ROUTES[0].members.fields.items()
    if field.attribute and field.attribute.startswith("terms.")
}
CLIENT = r.Client("i-1/s-1", "alpha", 101)
HOLDER = r.Holder("ann", "alpha", 101, token=8, held_for=3.25)
REQUESTS = [
    kind
    for module in (r, access, c)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, r.Request) and kind is not r.Request
]
HOSTILE = [
    "nightly",
    "node:123:delete-loop:5",
    "a/b/c",
    "/",
    "//",
    ".",
    "..",
    "...",
    "../../v1/server",
    "a/../b",
    "%",
    "%2F",
    "%2e%2e",
    "100 %",
    " leading and trailing ",
    "a+b&c=d;e?f#g",
    "clé",
    "锁",
    "🔒",
    "acquire",
    "\\windows\\path",
    "'\"<>{}|^`[]",
    "ü" * 255,
    "." * 255,
]


def is_data(kind: Any) -> bool:
    return hasattr(kind, "_values")


def example(hint: Any, seed: int = 1) -> Any:
    """Return a value of a type that is unlike every default."""
    if hint is str:
        return f"text-{seed}"
    if hint is int:
        return seed + 40
    if hint is float:
        return seed + 0.25
    if hint is bool:
        return True
    if get_origin(hint) is Literal:
        return get_args(hint)[-1]
    if get_origin(hint) in (types.UnionType, Union):
        return example(get_args(hint)[0], seed)
    if get_origin(hint) is tuple:
        return (example(get_args(hint)[0], seed), example(get_args(hint)[0], seed + 10))
    hints = get_type_hints(hint)
    return hint(**{name: example(hints[name], seed + n) for n, name in enumerate(hint.__match_args__)})


def nested(hint: Any) -> set[Any]:
    """Return the classes of values that a field has inside, if it has."""
    if is_data(hint):
        return {hint}
    return {kind for each in get_args(hint) for kind in nested(each)}


def closure(kinds: set[Any]) -> set[Any]:
    found = {kind for each in kinds for hint in get_type_hints(each).values() for kind in nested(hint)}
    return kinds if found <= kinds else closure(kinds | found)


def read_back(kind: type, asked: Asked) -> Any:
    """Make the request again of what is sent, as a server does."""
    path, query = urlsplit(asked.path)[2:4]
    fields: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    fields |= json.loads(json.dumps(asked.body or {}))
    parts = path.split("/")
    assert parts[:2] == ["", "v1"]
    if parts[2] in ("locks", "work") and len(parts) > 3:
        fields["key"] = unquote(parts[3], errors="strict")
    if parts[2] in ("access-tokens", "instances") and len(parts) > 3:
        fields["id"] = unquote(parts[3])
    if "client" in fields:
        fields["client"] = r.Client(**fields["client"])
    if kind is c.Offer:
        fields["works"] = tuple(c.OfferedWork(**each) for each in fields["works"])
    if kind is c.Claim:
        fields["types"] = tuple(fields["types"])
    if kind is r.Acquire:
        fields["terms"] = Terms(**{to: fields.pop(name) for name, to in TERMS.items() if name in fields})
    if kind is r.Renew:
        fields["leases"] = tuple(r.RenewLease(**each) for each in fields["leases"])
        fields["tickets"] = tuple(r.RefreshTicket(**each) for each in fields["tickets"])
    if kind is r.Release and "outcome" in fields:
        fields["outcome"] = Outcome(**fields["outcome"])
    if kind is r.Watch:
        fields["exact"] = "key" in fields
        fields["key"] = fields.pop("prefix", None) or fields.get("key", "")
    if kind is access.GrantAccess:
        fields["rights"] = tuple(fields["rights"])
    hints = get_type_hints(kind)
    for name, value in fields.items():
        if isinstance(value, str) and (plain := {float, int} & {hints[name], *get_args(hints[name])}):
            fields[name] = plain.pop()(value)  # a query has only text
    return kind(**fields)


def defaults(kind: Any) -> set[str]:
    """Return the fields that need not be said."""
    parameters = inspect.signature(kind).parameters.values()
    return {each.name for each in parameters if each.default is not inspect.Parameter.empty}


def bare(kind: Any) -> Any:
    """Return an example with nothing that need not be said."""
    made = example(kind)
    return kind(**{name: getattr(made, name) for name in kind.__match_args__ if name not in defaults(kind)})


# A fence is of the caller's own transaction; a probe is what a server does when it is asked for its health.
ROUTED = [kind for kind in REQUESTS if kind not in (r.Fence, r.Probe)]


@pytest.mark.parametrize("kind", ROUTED)
@pytest.mark.parametrize("make", [example, bare])
def test_a_request_can_be_read_back_from_what_is_sent(kind, make):
    request = make(kind)
    assert read_back(kind, wire.ask(request)) == request


READ = [
    r.Acquire("k", "a-1", "ann", 30.0, CLIENT, wait=True, terms=Terms("shared", delay=2.0), seen=8),
    r.Release("k", "a-1", 8, outcome=Outcome(True, "1", 60.0)),
    r.Renew((r.RenewLease("k", "a-1", 8, 30.0),), (r.RefreshTicket("k", "a-2", 9.0),)),
    r.Withdraw("k", "a-1"),
    r.History("k", limit=7),
    r.List(prefix="k", limit=7),
    c.Offer((c.OfferedWork("w:1", "[1]", 3, 1.5, 99.5), c.OfferedWork("w:2"))),
    c.Claim("i-1", 1, "a-1", ("w",), 8, 30.0, CLIENT),
    c.ListWork(instance=""),
    c.Finish("w:1", "a-1", 8, "completed"),
    access.GrantAccess("0" * 12, "ci", "0" * 64, ("acquire:*",)),
]


@pytest.mark.parametrize("request_", READ, ids=lambda request: type(request).__name__)
def test_the_table_makes_the_same_request_of_what_is_sent(request_):
    route, asked = BY_REQUEST[type(request_)], wire.ask(request_)
    if asked.body is None:
        given = route.members.read_query(urlsplit(asked.path).query)
    else:
        given = read_body(route.members, json.dumps(asked.body).encode())
    known = {"client": r.Client(**given["client"])} if given.get("client") else {}
    named = getattr(request_, route.attribute) if route.attribute else ""
    assert route.make(named, given, **known) == request_


def test_a_body_that_is_too_deep_to_be_checked_is_a_bad_request():
    class Endless(Shape):
        def read(self, value, name):
            raise RecursionError

    with pytest.raises(errors.RequestRefused, match="nested too deeply"):
        read_body(Fields({"data": may(Endless())}), b'{"data": []}')


@pytest.mark.parametrize(
    ("hint", "shape"),
    [(int | None, Whole()), (tuple[str, ...], Many(Text(shortest=0), 1000)), (Literal["a"], OneOf(("a",)))],
)
def test_what_nobody_lists_is_as_its_type_says(hint, shape):
    kind = data(type("Kind", (), {"__annotations__": {"many": hint}}))
    assert Fields.of(kind, {}).fields["many"].shape == shape


@data
class Downgrade(r.Request["r.Granted | r.NotHeld | r.Refused"]):
    """As it is, with one field more."""

    key: str
    attempt: str
    token: int
    mood: Literal["calm", "hasty"] = "calm"
    note: str = ""
    now: float | None = None


def test_a_field_is_added_in_one_place():
    """In the class of its request: it is sent, read within limits, described, and a part of the request."""
    was = next(route for route in ROUTES if route.request is r.Downgrade)
    listed = {name: was.members.fields[name] for name in ("attempt", "token")}
    route = wire.Route(
        was.name, was.method, was.path, was.about, "granted", request=Downgrade, members=listed
    )
    request = Downgrade("k", "a-1", 8, mood="hasty", note="why")
    asked = wire.ask_by(route, request)
    assert asked.body == {"attempt": "a-1", "token": 8, "mood": "hasty", "note": "why"}
    given = route.members.read(asked.body)
    assert route.make("k", given) == request
    for wrong in ({"mood": "sad"}, {"note": "x" * 256}, {"note": 7}):
        with pytest.raises(errors.SettingsError, match=next(iter(wrong))):
            route.members.read(asked.body | wrong)
    described = describe(routes=[route])["paths"][was.path]["post"]["requestBody"]["content"]
    properties = described["application/json"]["schema"]["properties"]
    assert properties["mood"] == {"type": "string", "enum": ["calm", "hasty"], "default": "calm"}
    assert list(properties) == ["attempt", "token", "mood", "note"]
    # A server of an earlier release does not know it, and need not: nobody has said it.
    usual = wire.ask_by(route, Downgrade("k", "a-1", 8))
    assert usual == wire.ask(r.Downgrade("k", "a-1", 8))
    assert route.make("k", route.members.read(usual.body or {})) == Downgrade("k", "a-1", 8)


@data
class NewTerms:
    """Such as they may be one day."""

    mode: Mode = "exclusive"
    delay: float = 0.0
    grace: float = 0.0


@data
class Take(r.Request["r.Granted"]):
    """A request with terms."""

    key: str
    attempt: str
    terms: NewTerms = NewTerms()


def test_a_term_is_added_in_one_place():
    listed = {name: ROUTES[0].members.fields[name] for name in ("attempt", "mode", "lock_delay")}
    route = wire.Route(
        "take", "POST", "/v1/{key}", "Take it.", request=Take, members=listed, parts={"terms": NewTerms}
    )
    request = Take("k", "a-1", NewTerms("shared", grace=2.5))
    said = wire.ask_by(route, request).body or {}
    assert said == {"attempt": "a-1", "mode": "shared", "grace": 2.5}
    assert route.make("k", route.members.read(said)) == request


@pytest.mark.parametrize("route", [route for route in ROUTES if route.request], ids=lambda route: route.name)
def test_the_table_has_all_that_its_requests_have(route):
    """Every attribute can be sent and is read back, or the path names it."""
    said = {(field.attribute or name).partition(".")[0] for name, field in route.members.fields.items()}
    extra = {name for name, field in route.members.fields.items() if field.attribute == ""}
    named = {route.attribute} - {None}
    left_out = {"now"} if route.request is r.Probe else set()
    assert (said - extra) | named | left_out == set(route.request.__match_args__)
    assert extra <= {"timeout"}


def test_what_only_reads_makes_no_events():
    assert {route.request for route in ROUTES if route.method == "GET" and route.request} - {r.Probe} <= READS
    assert not READS & {route.request for route in ROUTES if route.events}


def test_only_fencing_cannot_be_asked_over_a_wire():
    assert set(ROUTED) == set(REQUESTS) - {r.Fence, r.Probe}
    with pytest.raises(KeyError):
        wire.ask(r.Fence("nightly", "a-1", 8))


@pytest.mark.parametrize(
    ("request_", "method", "path"),
    [
        (r.Acquire("k", "a-1", "ann", 30.0, CLIENT), "POST", "/v1/locks/k/acquire"),
        (r.Release("k", "a-1", 8), "POST", "/v1/locks/k/release"),
        (r.Withdraw("k", "a-1"), "POST", "/v1/locks/k/withdraw"),
        (r.Downgrade("k", "a-1", 8), "POST", "/v1/locks/k/downgrade"),
        (r.Break("k", "olga", "stuck"), "POST", "/v1/locks/k/break"),
        (r.Resize("k", 4, "olga"), "POST", "/v1/locks/k/resize"),
        (r.Renew(), "POST", "/v1/renew"),
        (r.Inspect("k"), "GET", "/v1/locks/k"),
        (r.History("k"), "GET", "/v1/locks/k/history?limit=100"),
        (r.List(), "GET", "/v1/locks?limit=100"),
        (r.Watch("k", exact=True), "GET", "/v1/events?key=k&limit=100"),
        (r.Watch("", after=0), "GET", "/v1/events?prefix=&limit=100&after=0"),
        (r.Sweep(), "POST", "/v1/sweep"),
        (r.Probe(), "GET", "/readyz"),
        (access.GrantAccess("0a", "ci", "00", ()), "POST", "/v1/access-tokens"),
        (access.RevokeAccess("0a"), "DELETE", "/v1/access-tokens/0a"),
        (access.ListAccess(), "GET", "/v1/access-tokens"),
        (c.Join("i-1", "engine", CLIENT, 8, 90.0), "POST", "/v1/instances"),
        (c.Heartbeat("i-1", CLIENT, 90.0), "POST", "/v1/instances/i-1/heartbeat"),
        (c.Leave("i-1"), "POST", "/v1/instances/i-1/leave"),
        (c.Claim("i-1", 1, "a-1", ("w",), 8, 30.0, CLIENT), "POST", "/v1/instances/i-1/claim"),
        (c.ListInstances(), "GET", "/v1/instances?limit=100"),
        (c.Offer((c.OfferedWork("w:1"),)), "POST", "/v1/work"),
        (c.ListWork(), "GET", "/v1/work?limit=100"),
        (c.ListWork(instance=""), "GET", "/v1/work?limit=100&instance="),
        (c.CountWork(), "GET", "/v1/work-counts"),
        (c.InspectWork("w:1"), "GET", "/v1/work/w:1"),
        (c.Assign("w:1", "a-1", "ann", 30.0, CLIENT), "POST", "/v1/work/w:1/assign"),
        (c.Finish("w:1", "a-1", 8, "completed"), "POST", "/v1/work/w:1/finish"),
        (c.Forget("w:1"), "DELETE", "/v1/work/w:1"),
    ],
    ids=lambda value: type(value).__name__ if is_data(type(value)) else "",
)
def test_where_requests_are_sent(request_, method, path):
    asked = wire.ask(request_)
    assert (asked.method, asked.path) == (method, path)
    assert (asked.body is None) is (method != "POST")


@pytest.mark.parametrize("key", HOSTILE)
@pytest.mark.parametrize(
    "kind", [kind for kind in ROUTED if get_type_hints(kind).get("key") and kind is not r.Watch]
)
def test_any_key_is_one_segment_of_the_path(kind, key):
    """Also after a proxy has resolved dots, as it may: ``/a/../b`` is ``/b`` to it."""
    asked = wire.ask(replace(bare(kind), key=key))
    assert asked.path.isascii()
    path = urlsplit(asked.path).path
    assert path.count("/") == wire.ask(replace(bare(kind), key="k")).path.partition("?")[0].count("/")
    assert not {".", ".."} & set(path.split("/"))
    assert read_back(kind, asked).key == key


@pytest.mark.parametrize("key", HOSTILE)
def test_any_key_survives_a_query(key):
    for request in (
        r.Watch(key, exact=True, after=7),
        r.Watch(key, after=7),
        r.List(prefix=key, after=key, owner=key, type=key),
    ):
        asked = wire.ask(request)
        assert asked.path.isascii()
        assert read_back(type(request), asked) == request


def test_terms_are_sent_only_when_they_are_not_the_usual_ones():
    plain = r.Acquire("k", "a-1", "ann", 30.0, CLIENT)
    assert not set(TERMS) & set(wire.ask(plain).body or {})
    shared = wire.ask(replace(plain, terms=Terms(mode="shared", delay=2.0))).body or {}
    assert (shared["mode"], shared["lock_delay"]) == ("shared", 2.0)
    assert not {"operation", "at_least"} & set(shared)  # which a server of an earlier release may not know
    assert set(TERMS.values()) == set(Terms.__match_args__)  # type: ignore[attr-defined]


def test_what_a_server_of_an_earlier_release_does_not_know_is_sent_only_if_it_is_meant():
    assert (wire.ask(r.Release("k", "a-1", 8, outcome=Outcome(True, "1"))).body or {})["outcome"] == {
        "succeeded": True,
        "text": "1",
    }
    kept = wire.ask(r.Release("k", "a-1", 8, outcome=Outcome(True, "1", 60.0))).body or {}
    assert kept["outcome"]["keep"] == 60.0
    assert wire.ask(r.Withdraw("k", "a-1")).body == {"attempt": "a-1"}
    assert wire.ask(r.Withdraw("k", "a-1", held=True)).body == {"attempt": "a-1", "held": True}
    plain = r.Acquire("k", "a-1", "ann", 30.0, CLIENT)
    assert "seen" not in (wire.ask(plain).body or {})
    assert (wire.ask(replace(plain, seen=8)).body or {})["seen"] == 8


def test_a_given_time_is_sent_and_none_is_not():
    for kind in ROUTED:
        asked = wire.ask(bare(kind))
        assert "now" not in (asked.body or {})
        assert "now=" not in asked.path


ANSWERS = sorted(wire.ANSWERS.values(), key=lambda kind: kind.__name__)


def over_the_wire(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_says_which_it_is_and_comes_back_as_it_was(kind):
    answer = example(kind)
    body = over_the_wire(wire.answer_to_json(answer))
    assert wire.ANSWERS[body["answer"]] is kind
    assert wire.answer_from_json(r.Inspect("k"), body) == answer


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_without_what_need_not_be_said(kind):
    answer = bare(kind)
    body = over_the_wire(wire.answer_to_json(answer))
    left_out = {name: value for name, value in body.items() if name not in defaults(kind) or name == "answer"}
    assert wire.answer_from_json(r.Inspect("k"), left_out) == answer


def test_nobody_is_a_holder_too():
    free = r.LockView("k", "free", 8, None, 0.0, 0, 0)
    assert wire.answer_from_json(r.Inspect("k"), wire.answer_to_json(free)) == free


def test_every_answer_to_a_request_that_can_be_sent_is_known():
    """A request names the types of its answers; each must have its name on the wire."""
    told: set[Any] = set()
    for kind in (*ROUTED, r.Probe):
        (said,) = get_args(kind.__orig_bases__[0])
        text = getattr(said, "__forward_arg__", None)
        hint = eval(text, vars(r) | vars(access) | vars(c)) if text else said
        told |= {each for each in (get_args(hint) or (hint,)) if each not in (type(None), ...)}
    assert told - {Event, c.WorkCount} == set(ANSWERS)  # these come as items


def test_the_values_inside_of_others_are_those_that_their_types_say():
    kinds = closure({*ANSWERS, Event, access.AccessToken, c.WorkCount})
    assert {r.Holder, r.Waiter, r.LeaseAnswer, r.TicketAnswer, Failure, Link, Event} <= kinds
    for kind in kinds:
        said = {
            name for name, hint in get_type_hints(kind).items() if nested(hint) or get_origin(hint) is tuple
        }
        assert set(wire.answers.inside(kind)) == said, kind


def test_what_need_not_be_said_of_work_is_not_said():
    """There may be a thousand in one body."""
    plain, other = c.OfferedWork("w:1"), c.OfferedWork("w:2", "[1]", 3, 1.5, 99.5)
    said = (wire.ask(c.Offer((plain, other))).body or {})["works"]
    assert said == [
        {"key": "w:1"},
        {"key": "w:2", "data": "[1]", "max_tries": 3, "delay": 1.5, "at": 99.5},
    ]
    assert "id" not in (wire.ask(c.Assign("w:1", "a-1", "ann", 30.0, CLIENT)).body or {})


@pytest.mark.parametrize("id", HOSTILE)
@pytest.mark.parametrize("kind", [c.Heartbeat, c.Leave, c.Claim])
def test_any_id_of_an_instance_is_one_segment_of_the_path(kind, id):
    """What ids may be is the server's business."""
    asked = wire.ask(replace(bare(kind), id=id))
    assert asked.path.isascii()
    assert asked.path.count("/") == 4
    assert not {".", ".."} & set(asked.path.split("/"))
    assert read_back(kind, asked).id == id


def test_events_access_tokens_and_counts_come_as_items():
    events = (example(Event), example(Event, 20))
    body = over_the_wire({"answer": "events", "items": as_dict(events)})
    assert body["answer"] == "events"
    assert wire.answer_from_json(r.History("k"), body) == events
    tokens = (example(access.AccessToken),)
    body = over_the_wire({"answer": "access_tokens", "items": as_dict(tokens)})
    assert wire.answer_from_json(access.ListAccess(), body) == tokens
    assert wire.answer_from_json(r.History("k"), {"answer": "events", "items": []}) == ()
    counts = (example(c.WorkCount),)
    body = over_the_wire({"answer": "work_counts", "items": as_dict(counts)})
    assert wire.answer_from_json(c.CountWork(), body) == counts


def test_nothing_is_an_answer():
    assert wire.answer_from_json(r.Inspect("k"), {"answer": "nothing"}) is None


def test_what_a_newer_server_says_more_is_left_out():
    body = {"answer": "granted", "token": 8, "expires_in": 29.5, "colour": "red", "key": "k", "attempt": "a"}
    assert wire.answer_from_json(r.Inspect("k"), body) == r.Granted(8, 29.5)
    body = {"answer": "broken", "holder": {**as_dict(HOLDER), "colour": "red"}}
    assert wire.answer_from_json(r.Inspect("k"), body) == r.Broken(HOLDER)


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        None,
        "granted",
        {"answer": None},
        {"answer": []},
        {"answer": "fenced", "token": 8},
        {"answer": "granted"},
        {"answer": "broken", "holder": 7},
        {"answer": "broken", "holder": {"owner": "ann"}},
        {"answer": "page", "locks": None},
        {"answer": "page", "locks": [7]},
        {"answer": "page", "locks": "no"},
        {"answer": "feed", "events": {"a": 1}, "after": 7},
    ],
    ids=repr,
)
def test_nonsense_is_no_answer(body):
    with pytest.raises(ValueError, match="no answer to Inspect"):
        wire.answer_from_json(r.Inspect("k"), body)


@pytest.mark.parametrize("body", [{}, [], {"items": None}, {"items": [7]}, {"items": "no"}], ids=repr)
@pytest.mark.parametrize("request_", [r.History("k"), access.ListAccess()])
def test_nonsense_is_no_list_of_things(request_, body):
    with pytest.raises(ValueError, match=f"no answer to {type(request_).__name__}"):
        wire.answer_from_json(request_, body)


def test_what_is_shown_of_nonsense_has_an_end():
    with pytest.raises(ValueError, match="no answer") as raised:
        wire.answer_from_json(r.Inspect("k"), {"answer": "x" * 10_000})
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_problem_has_the_name_the_fields_and_the_status_of_its_error(error):
    problem = over_the_wire(wire.error_to_json(error))
    assert problem["type"] == f"urn:holdfast:error:{type(error).__name__}"
    assert problem["error"] == type(error).__name__
    assert problem["status"] == errors.http_status(error)
    assert problem["detail"] == str(error)
    assert problem["title"]
    assert "\n" not in problem["title"]
    said = set(vars(error)) - {"detail", "status"}
    assert said <= set(problem)
    assert "because" not in problem


@pytest.mark.parametrize(
    "error",
    [error for error in ERRORS if isinstance(error, errors.StoreError | errors.SettingsError)],
    ids=lambda error: type(error).__name__,
)
def test_what_a_store_may_raise_comes_back_from_its_problem(error):
    problem = over_the_wire(wire.error_to_json(error))
    back = wire.error_from_json(problem["status"], problem)
    assert type(back) is type(error)
    assert (str(back), vars(back)) == (str(error), vars(error))


def test_an_invalid_key_comes_back_with_its_reason():
    error = errors.InvalidKey("", "is empty")
    back = wire.error_from_json(422, over_the_wire(wire.error_to_json(error)))
    assert (type(back), str(back), vars(back)) == (errors.InvalidKey, str(error), vars(error))


def test_what_is_for_callers_and_not_for_stores_is_a_refused_request():
    """The answer under ``because`` says what the clients raise; without one nobody should have sent it."""
    problem = wire.error_to_json(errors.LockTimeout("k", waited=1.0))
    back = wire.error_from_json(409, problem)
    assert (type(back), back.status) == (errors.RequestRefused, 409)  # type: ignore[attr-defined]


def test_a_problem_has_the_answer_that_it_is_raised_for():
    busy = r.Busy(HOLDER, 12.5)
    problem = over_the_wire(wire.error_to_json(errors.LockTimeout("k", waited=0.0, holder=HOLDER), busy))
    assert problem["holder"] == problem["because"]["holder"]
    assert wire.answer_from_json(r.Inspect("k"), problem["because"]) == busy


def test_the_answer_may_be_json_already():
    problem = wire.error_to_json(errors.RequestRefused(404, "no such lock"), {"answer": "nothing"})
    assert problem["because"] == {"answer": "nothing"}
    assert problem["status"] == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"error": None},
        {"error": "CODES"},
        {"error": "TYPE_CHECKING"},
        {"error": "Any"},
        {"error": "exit_code"},
    ],
    ids=repr,
)
def test_a_problem_of_somebody_else_is_a_refused_request(body):
    error = wire.error_from_json(502, body)
    assert type(error) is errors.RequestRefused
    assert (error.status, str(error)) == (502, "the server answered 502")


@pytest.mark.parametrize(
    "value", [None, "soon", [], {}, -1, float("nan"), float("inf"), 1e300, 10**400], ids=repr
)
def test_numbers_that_make_no_sense_are_not_believed(value):
    """A client waits for as long as it is told to."""
    error = wire.error_from_json(429, {"error": "TooManyRequests", "retry_after": value, "detail": "slower"})
    assert (type(error), vars(error)) == (errors.TooManyRequests, {"retry_after": 1.0})
    error = wire.error_from_json(429, {"error": "LimitExceeded", "limit": "keys", "most": value})
    assert vars(error) == {"limit": "keys", "most": 0.0}


def test_an_error_that_nobody_else_knows_is_told_as_the_one_it_is_a_kind_of():
    class Mine(errors.StoreUnavailable):
        pass

    problem = wire.error_to_json(Mine("x"))
    assert (problem["error"], problem["status"]) == ("StoreUnavailable", 503)
    assert problem["title"] == wire.error_to_json(errors.StoreUnavailable("x"))["title"]


@pytest.mark.parametrize(
    "said", [{}, {"mode": "exclusive"}, {"mode": "shared"}, {"permits": 4, "take": 2, "mode": "permits"}]
)
def test_terms_are_made_of_their_members_or_the_usual_ones(said):
    route = next(route for route in ROUTES if route.name == "acquire")
    given = route.body.read({"ttl": 10.0, "attempt": "a-1", "owner": "ann", **said})
    request = route.make("nightly", given, client=r.Client("i-1", "alpha", 1))
    expected = Terms(**said)
    assert request.terms == replace(expected, mode=said.get("mode"))
    assert route.make("nightly", given, client=request.client) == request
