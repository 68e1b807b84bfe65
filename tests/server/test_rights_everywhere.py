"""A token without rights to a prefix can neither read, list, watch nor infer its keys, on any route.

The tests walk the server's table of routes, so that a route that nobody thought of here is a failure.
"""

import itertools
import json
import os
from urllib.parse import quote, urlencode

import pytest

from holdfast.core.access import VERBS
from holdfast.core.cluster import WORK_STATES
from holdfast.core.wire import ROUTES
from tests.server.callers import HELD, MARK, NEVER, listening

MINE = ("mine:", "shared:")  # the latter between others' keys that begin with s

BY_NAME = {route.name: route for route in ROUTES}
PUBLIC = [route.name for route in ROUTES if route.public]
ON_KEYS = [route.name for route in ROUTES if "{key}" in route.path]
LEASE = {"attempt": "a-1", "token": 1}
BODIES = {
    "acquire": {"ttl": 30},
    "release": LEASE,
    "withdraw": {"attempt": "a-1"},
    "downgrade": LEASE,
    "break": {"reason": "why not"},
    "resize": {"permits": 3},
    "renew": {},
    "sweep": {},
    "grant_access": {"id": "0" * 12, "name": "me", "digest": "00" * 32, "rights": ["admin:*"]},
    "join": {"id": "i-9"},
    "heartbeat": {},
    "leave": {},
    "claim": {"number": 1, "attempt": "a-1", "types": ["mine"]},
    "offer": {"works": [{"key": "mine:verb"}]},
    "assign": {"attempt": "a-1"},
    "finish": {**LEASE, "ending": "failed"},
}


def path_of(route, key="mine:a"):
    values = {"key": quote(key, safe=""), "id": "f" * 12, "file": "app.js", "instance": "i-9"}
    return route.path.format(**values)


def snooping(name):
    """Return what somebody asks who wants to know of other people's keys: paths with queries, and bodies."""
    route = BY_NAME[name]
    if name in ON_KEYS:
        return [(path_of(route, HELD), BODIES.get(name))]
    queries = {
        "list": [
            *({"prefix": prefix} for prefix in ("", "s", "secret:", f"secret:{MARK}:", HELD)),
            *({"after": after} for after in ("a", "mine:z", "secret:", f"secret:{MARK}:")),
            {"owner": f"boss/{MARK}-holder"},
            {"owner": f"boss/{MARK}-holder", "prefix": "mine:"},
            {"type": "secret"},
            {"state": "held", "limit": 1000},
            {"state": "free"},
            *({"limit": 1, "after": after} for after in ("", "mine:a", "mine:c", "n", "secret:")),
        ],
        "events": [
            *({"after": 0, "limit": 1000, "prefix": prefix} for prefix in ("", "s", "secret:", HELD)),
            {"after": 0, "limit": 1},
            {"after": 1},
            {},
        ],
        "history": [{}],
        "list_work": [
            *({"prefix": prefix} for prefix in ("", "s", "secret:", f"secret:{MARK}:", HELD)),
            *({"after": after} for after in ("a", "mine:z", "secret:", f"secret:{MARK}:")),
            *({"instance": id} for id in (f"boss/{MARK}-1", f"{MARK}-1", "")),
            *({"state": state, "limit": 1000} for state in WORK_STATES),
            *({"limit": 1, "after": after} for after in ("", "mine:w0", "mine:w2", "n", "secret:")),
        ],
        "count_work": [{}],
        "instances": [
            *({"limit": limit} for limit in (1, 2, 1000)),
            *({"after": after} for after in ("a", "boss/", f"boss/{MARK}-1", "me/", "z")),
        ],
    }
    if name in queries:
        return [(f"{route.path}?{urlencode(query)}", None) for query in queries[name]]
    if name == "renew":
        lease = {"key": HELD, "attempt": f"{MARK}-1", "token": 1, "ttl": 30}
        ticket = {"key": HELD, "attempt": f"{MARK}-2", "patience": 30}
        return [(route.path, {"leases": [lease]}), (route.path, {"tickets": [ticket]})]
    if name == "join":
        return [(route.path, {"id": "i-9"}), (route.path, {"id": f"boss/{MARK}-1"})]
    if name in ("heartbeat", "leave", "claim"):
        path, body = route.path.format(instance=f"{MARK}-1"), BODIES[name]
        claims = [
            {**body, "types": types} for types in (["secret"], ["mine", "secret"], [f"{MARK}-type"], [""])
        ]
        return [(path, each) for each in (claims if name == "claim" else [body])]
    if name == "offer":
        return [
            (route.path, {"works": [{"key": key}, {"key": HELD}], "again": True}) for key in (HELD, "mine:x")
        ]
    if name == "sweep":
        return [(route.path, {}), (route.path, {"after": "secret:", "limit": 1})]
    return [(path_of(route), BODIES.get(name))]


# What the callers have named themselves.
SAID = (
    HELD,
    f"{MARK}-type",
    *(f"{who}/{MARK}-1" for who in ("me", "somebody")),
    f'"{MARK}-1"',
    f"boss/{MARK}-1",
)
ONCE = ("signals",)  # always a stream: see below


@pytest.mark.parametrize("name", [route.name for route in ROUTES if route.name not in ONCE])
def test_no_answer_has_anything_of_what_is_not_to_be_seen(scene, name):
    """But for the key that the caller has named itself."""
    for path, body in snooping(name):
        for who in (scene.me, scene.nobody, scene.somebody("observe:other", "acquire:mine:*")):
            for method in dict.fromkeys((BY_NAME[name].method, "HEAD", "OPTIONS", "PUT")):
                answer = who.ask(method, path, body)
                told = answer.everything
                for said in SAID:
                    told = told.replace(said, "SAID")
                assert MARK not in told, (method, path)
                if method == BY_NAME[name].method and who is scene.nobody and name not in PUBLIC:
                    assert answer.status == 401
                    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("name", ON_KEYS)
def test_a_key_that_exists_and_one_that_does_not_are_refused_alike(scene, name):
    route = BY_NAME[name]
    queries = ("", "?now=1", "?limit=1", "?nonsense")
    bodies = [None, BODIES.get(name), {"nonsense": 1}, []]
    for who in (scene.me, scene.somebody("observe:other")):
        for query, body in itertools.product(queries, bodies):
            for headers in ({}, {"Accept": "text/event-stream"}, {"Holdfast_History": "all"}):
                told = [
                    who.ask(route.method, path_of(route, key) + query, body, **headers).without(key)
                    for key in (HELD, NEVER)
                ]
                assert told[0] == told[1]
                assert told[0][0] == 403, told


@pytest.mark.parametrize("what", ["leases", "tickets"])
def test_a_batch_with_one_key_that_is_not_allowed_does_nothing(scene, what):
    mine = scene.me.do("mine:batch", "acquire", ttl=30)
    batch = [{"key": "mine:batch", "attempt": mine["attempt"], "token": mine["token"], "ttl": 3600}]
    told = []
    for key in (HELD, NEVER):
        other = {"key": key, "attempt": f"{MARK}-1"}
        other |= {"token": 1, "ttl": 30} if what == "leases" else {"patience": 30}
        body = {"leases": [*batch, other] if what == "leases" else batch}
        if what == "tickets":
            body["tickets"] = [other]
        told.append(scene.me.ask("POST", "/v1/renew", body).without(key))
    assert told[0] == told[1]
    assert told[0][0] == 403
    assert scene.me.ask("GET", "/v1/locks/mine:batch").json["expires_in"] <= 30
    assert scene.me.ask("POST", "/v1/renew", {"leases": batch}).json["leases"][0]["outcome"] == "renewed"
    lease = {"attempt": mine["attempt"], "token": mine["token"]}
    scene.me.do("mine:batch", "release", **lease)


def test_whoever_looks_at_all_locks_sees_exactly_what_they_may(scene):
    seen, after, pages = [], "", 0
    while after is not None:
        page = scene.me.ask("GET", f"/v1/locks?{urlencode({'limit': 1, 'after': after})}").json
        seen += [lock["key"] for lock in page["locks"]]
        after = page["after"]
        assert after is None or after.startswith(MINE)
        pages += 1
    assert seen == sorted(set(seen))
    assert {"mine:a", "mine:b", "mine:c"} <= set(seen)
    assert all(key.startswith(MINE) for key in seen)
    everything = scene.boss.ask("GET", "/v1/locks?limit=1000").json["locks"]
    assert HELD in {lock["key"] for lock in everything}  # so there was something to be hidden
    assert seen == [lock["key"] for lock in everything if lock["key"].startswith(MINE)]


def test_rights_to_several_prefixes_and_keys_are_listed_in_one_order(scene):
    for key in ("list:a", "list:a:1", "list:ab", "list:b", "list:c:1", "list:c:2", "list:d"):
        scene.boss.do(key, "acquire", ttl=3600)
    who = scene.somebody(
        "observe:list:c:*", "observe:list:a", "admin:list:b", "observe:list:a:*", "acquire:list:d"
    )
    for limit in (1, 2, 3, 100):
        seen, after = [], ""
        while after is not None:
            page = who.ask("GET", f"/v1/locks?{urlencode({'limit': limit, 'after': after})}").json
            seen += [lock["key"] for lock in page["locks"]]
            after = page["after"]
        assert seen == ["list:a", "list:a:1", "list:b", "list:c:1", "list:c:2"]
    assert who.ask("GET", "/v1/locks?prefix=list:c:2").json["locks"][0]["key"] == "list:c:2"
    assert who.ask("GET", "/v1/locks?prefix=list:d").json["locks"] == []


# Verbs.


@pytest.mark.parametrize("name", [route.name for route in ROUTES if route.verb is not None])
def test_a_route_needs_its_verb_and_all_others_together_are_not_enough(scene, name):
    route = BY_NAME[name]
    patterns = ["*"] if route.scope == "everywhere" else ["mine:*", "instance:*"]
    others = [
        f"{verb}:{pattern}" for verb in VERBS if verb not in (route.verb, "admin") for pattern in patterns
    ]
    body = BODIES.get(name)
    if name == "renew":
        body = {"tickets": [{"key": "mine:verb", "attempt": "a-1", "patience": 30}]}
    path = path_of(route, "mine:verb")
    answer = scene.somebody(*others).ask(route.method, path, body)
    assert (answer.status, answer.json["error"]) == (403, "AccessDenied"), answer.everything
    if name not in ONCE:
        for verb in (route.verb, "admin"):
            rights = [f"{verb}:{pattern}" for pattern in patterns]
            answer = scene.somebody(*rights, name="allowed").ask(route.method, path, body)
            assert answer.status not in (401, 403), answer.everything


@pytest.mark.parametrize("name", [route.name for route in ROUTES if route.scope == "everywhere"])
def test_what_concerns_everybody_needs_a_right_to_everything(scene, name):
    route = BY_NAME[name]
    for right in ("admin:mine:*", "admin:a*", "observe:mine:*"):
        answer = scene.somebody(right).ask(route.method, path_of(route), BODIES.get(name))
        assert answer.status == 403


def test_figures_have_no_names_in_them(scene):
    """Not even for those who may see all: labels are few, and keys are many. But types of work are told."""
    answer = scene.boss.ask("GET", "/metrics")
    assert answer.status == 200
    assert f'holdfast_work{{type="{MARK}-type",state="offered"}} 1' in answer.everything
    told = answer.everything.replace(f"{MARK}-type", "TYPE")
    assert MARK not in told
    assert "mine:" not in told


def test_whoever_has_no_rights_at_all_learns_only_who_they_are(scene):
    who = scene.somebody("observe:other", name="poor")
    answer = who.ask("GET", "/v1/server")
    assert answer.json["principal"] == {"name": "poor", "rights": ["observe:other"]}
    assert answer.json["authentication"] is True
    assert who.ask("GET", "/v1/locks").json["locks"] == []
    assert who.ask("GET", "/v1/events?after=0&limit=1000").json["events"] == []


def test_nobody_makes_a_token_that_gives_more_than_they_have(scene):
    for right in ("admin:*", "admin:mine:*", "observe:mine:a"):
        body = {**BODIES["grant_access"], "rights": [right]}
        assert scene.me.ask("POST", "/v1/access-tokens", body).status == 403


# Streams.


def commotion(scene):
    """Have everything happen to a secret key that can happen to one."""
    boss = scene.boss
    key = f"secret:{MARK}:{os.urandom(4).hex()}"
    lease = boss.do(key, "acquire", owner=f"{MARK}-x")
    boss.do(key, "acquire", owner=f"{MARK}-y", attempt=f"{MARK}-{key}", wait=True)
    boss.do(key, "release", attempt=lease["attempt"], token=lease["token"])  # handed over
    boss.do(key, "break", reason=f"{MARK} again")
    lease = boss.do(key, "acquire", owner=f"{MARK}-z", operation=True)
    outcome = {"succeeded": False, "text": f"{MARK} failed"}
    boss.do(key, "release", attempt=lease["attempt"], token=lease["token"], outcome=outcome)
    boss.do(f"{key}:gpu", "resize", permits=2)
    assert boss.ask("GET", f"/v1/locks/{quote(key, safe='')}/history").json["items"]


@pytest.mark.parametrize("query", ["", "?prefix=", "?prefix=s", "?after=0", "?after=0&prefix=s"])
@pytest.mark.parametrize("headers", [{}, {"Last_Event_ID": "0"}], ids=["", "resumed"])
def test_an_event_stream_has_only_what_may_be_seen(scene, query, headers):
    with (
        listening(scene.boss, f"/v1/events{query}", **headers) as all_of_it,
        listening(scene.me, f"/v1/events{query}", **headers) as mine,
    ):
        assert mine.status == 200
        mine.until("^id: ")
        all_of_it.until("^id: ")
        commotion(scene)
        last = scene.me.do(f"shared:{os.urandom(4).hex()}", "acquire", ttl=30)
        for listener in (mine, all_of_it):
            listener.until(str(last["token"]))  # whatever was to be told before it was told before it
        assert MARK in all_of_it.seen
        assert MARK not in mine.seen
        assert "secret" not in mine.seen


def test_an_event_stream_of_one_key_needs_a_right_to_it(scene):
    told = []
    for key in (HELD, NEVER):
        with listening(scene.me, f"/v1/events?key={quote(key, safe='')}") as listener:
            assert listener.status == 403
            told.append(listener.to_its_end().replace(key, "KEY"))
    assert told[0] == told[1]


def test_whoever_may_only_acquire_watches_nothing(scene):
    with listening(scene.somebody("acquire:mine:*"), "/v1/events") as listener:
        assert listener.status == 403


def test_signals_of_keys_that_one_may_not_acquire_are_not_passed_on(scene):
    """Not even if somebody who may has them sent to one's address."""
    with listening(scene.me, f"/v1/signals?{urlencode({'instance': 'i-1'})}") as listener:
        hello = json.loads(listener.until("^data: ").removeprefix("data: "))
        client = {"instance": hello["address"], "host": "h", "pid": 1}
        for who, key in ((scene.boss, f"secret:{MARK}:signal"), (scene.me, "mine:signal")):
            held = who.do(key, "acquire", ttl=600)
            who.do(key, "acquire", wait=True, attempt=f"waits-{key}", client=client)
            who.do(key, "release", attempt=held["attempt"], token=held["token"])
        assert json.loads(listener.until("mine:signal").removeprefix("data: "))["kind"] == "granted"
        assert MARK not in listener.seen


def test_that_there_are_events_is_told_to_who_may_see_some(scene):
    """And asks for it: nobody can have it sent to somebody else."""
    somebody = scene.somebody("observe:mine:*")
    with listening(somebody, f"/v1/signals?{urlencode({'instance': 'i-3'})}") as listener:
        hello = json.loads(listener.until("^data: ").removeprefix("data: "))
        for address, who, tells in (
            (hello["address"], scene.boss, False),
            (f"{hello['server']}/elsewhere", somebody, False),
            (hello["address"].replace(hello["server"], "elsewhere"), somebody, False),
            (hello["address"], somebody, True),
        ):
            asked = urlencode({"after": 0, "address": address})
            assert json.loads(who.ask("GET", f"/v1/events?{asked}").body)["tells"] is tells
        scene.boss.do(f"secret:{MARK}:event", "acquire", ttl=600)
        scene.boss.do(f"secret:{MARK}:event", "break", reason="r")
        told = json.loads(listener.until('"events"').removeprefix("data: "))
        assert told == {"kind": "events", "key": "", "attempt": "", "expires_in": 0.0}
        assert MARK not in listener.seen


def test_others_see_neither_that_one_is_connected_nor_from_where(scene):
    with listening(scene.boss, f"/v1/signals?{urlencode({'instance': MARK, 'host': MARK})}") as listener:
        listener.until("hello")
        assert MARK not in scene.me.ask("GET", "/v1/clients").everything
        assert MARK in scene.boss.ask("GET", "/v1/clients").everything
    with listening(scene.me, f"/v1/signals?{urlencode({'instance': 'i-2', 'host': 'my-host'})}") as listener:
        listener.until("hello")
        assert "my-host" in scene.me.ask("GET", "/v1/clients").everything


@pytest.mark.parametrize("how", ["one by one", "long poll", "stream"])
def test_a_deadlock_through_other_peoples_keys_is_told_without_them(scene, how):
    """X has mine:1 and wants mine:2; Y has that and waits for a secret, which Z has, who waits for mine:1."""
    run = os.urandom(4).hex()
    ours, theirs, hidden = f"mine:{run}:1", f"mine:{run}:2", f"secret:{MARK}:{run}"
    scene.me.do(ours, "acquire", owner=f"x-{run}", ttl=600)
    scene.boss.do(theirs, "acquire", owner=f"y-{run}", ttl=600)
    scene.boss.do(hidden, "acquire", owner=f"z-{run}", ttl=600)
    scene.boss.do(hidden, "acquire", owner=f"y-{run}", attempt=f"y-{run}", wait=True, patience=600)
    scene.boss.do(ours, "acquire", owner=f"z-{run}", attempt=f"z-{run}", wait=True, patience=600)
    watching = scene.me.listen("/v1/events?prefix=mine:")
    watching.until("^id: ")
    path = f"/v1/locks/{quote(theirs, safe='')}/acquire"
    body = {"owner": f"x-{run}", "attempt": f"x-{run}", "wait": how != "long poll"}
    if how == "stream":
        with listening(scene.me, path, "POST", body) as listener:
            told = listener.to_its_end()
    else:
        answer = scene.me.ask("POST", path, body if how == "one by one" else {**body, "timeout": 20})
        told = answer.everything
        assert answer.status == 409
    assert "DeadlockDetected" in told
    assert "(hidden)" in told
    assert theirs in told
    assert MARK not in told
    watching.until("event: deadlocked")
    watching.until("^data: ")
    watching.close()
    assert MARK not in watching.seen
    for seen in (
        scene.me.ask("GET", f"/v1/locks/{quote(theirs, safe='')}/history"),
        scene.me.ask("GET", "/v1/events?after=0&limit=1000"),
        scene.me.ask("POST", path, body),
        scene.me.ask("POST", f"/v1/locks/{quote(theirs, safe='')}/withdraw", {"attempt": f"x-{run}"}),
    ):
        assert MARK not in seen.everything


def open_streams(scene, who):
    """Return a stream of every route that has some."""
    scene.boss.do("mine:busy", "acquire", attempt="busy", owner="busy", ttl=600)
    opened = {
        "events": who.listen("/v1/events"),
        "signals": who.listen("/v1/signals"),
        "acquire": who.listen("/v1/locks/mine:busy/acquire", "POST", {"wait": True}),
    }
    assert set(opened) == {route.name for route in ROUTES if route.streams}
    return opened


@pytest.mark.parametrize("name", [route.name for route in ROUTES if route.streams])
def test_revoking_a_token_ends_what_it_has_open(scene, name):
    who = scene.somebody("admin:mine:*", name="leaving")
    opened = open_streams(scene, who)
    try:
        opened[name].until("^(id|event): ")
        assert scene.boss.ask("DELETE", f"/v1/access-tokens/{who.id}").status == 200
        told = opened[name].to_its_end()
        assert "event: goodbye" in told
        assert '"revoked"' in told
        assert who.ask("GET", "/v1/server").status == 401
    finally:
        for listener in opened.values():
            listener.close()


# Names.


def test_knowing_an_owners_name_does_not_let_one_into_its_lease(scene):
    """It is a name, and not a secret: the holder proves itself by its attempt."""
    scene.boss.do("mine:owned", "acquire", owner="worker", ttl=600)
    view = scene.me.ask("GET", "/v1/locks/mine:owned").json
    for name in (view["holder"]["owner"], "worker", "boss/worker"):
        answer = scene.me.ask("POST", "/v1/locks/mine:owned/acquire", {"owner": name})
        assert (answer.status, answer.json["error"]) == (409, "LockTimeout")


def test_no_answer_tells_anybody_elses_attempt(scene):
    scene.boss.do("mine:told", "acquire", owner="holder", attempt="told-holder", ttl=600)
    scene.boss.do("mine:told", "acquire", owner="waiter", attempt="told-waiter", wait=True, patience=600)
    path = "/v1/locks/mine:told"
    for answer in (
        scene.me.ask("GET", path),
        scene.me.ask("GET", f"{path}/history"),
        scene.me.ask("GET", "/v1/locks"),
        scene.me.ask("GET", "/v1/events?after=0&limit=1000"),
        scene.me.ask("POST", f"{path}/acquire", {}),
        scene.me.ask("POST", f"{path}/acquire", {"wait": True}),
        scene.me.ask("POST", f"{path}/break", {"reason": "to see what it says"}),
    ):
        assert "told-" not in answer.everything


# Nothing is left out.


def test_every_route_is_asked_by_somebody_who_may_not_know():
    asked = {route.name for route in ROUTES if route.name not in ONCE and snooping(route.name)}
    assert asked | set(ONCE) == set(BY_NAME)
    assert set(BODIES) == {route.name for route in ROUTES if route.body is not None}
    for route in ROUTES:
        unchecked = ("server", "clients", "signals")  # what is told there depends on who listens
        assert route.public or route.verb is not None or route.name in unchecked, route.name
        assert (route.scope == "key") is ("{key}" in route.path), route.name
        named = route.scope in ("instance", "types") and route.name != "join"
        assert named is ("{instance}" in route.path), route.name


def test_where_a_page_of_events_ends_tells_nothing_of_hidden_keys(scene):
    places = {
        scene.me.ask("GET", f"/v1/events?after=0&limit=1&prefix={quote(prefix)}").json["after"]
        for prefix in (HELD, NEVER, f"secret:{MARK}", "secret:", "nothing", "")
    }
    assert len(places) == 1
