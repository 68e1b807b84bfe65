"""Whose instances are whose, and who may claim, offer, see and forget which work."""

import json
import os
from urllib.parse import quote, urlencode

import pytest

from holdfast import Holdfast
from tests.server.callers import listening


@pytest.fixture
def name():
    """Each test has its own types, instances and principals."""
    return f"r{os.urandom(4).hex()}"


def claim(who, id, number, *types, **more):
    body = {"number": number, "attempt": f"{id}-{number}", "types": types, "limit": 100, **more}
    return who.ask("POST", f"/v1/instances/{id}/claim", body)


def test_an_instance_is_its_principals_own(scene, name):
    """Knowing an id lets nobody else beat, drain, claim, leave or be given work for it."""
    ann = scene.somebody("acquire:instance:*", f"acquire:{name}:*", name=f"{name}-ann")
    bob = scene.somebody("acquire:instance:*", f"acquire:{name}:*", name=f"{name}-bob")
    assert ann.join("i-1")["id"] == f"{name}-ann/i-1"
    ann.on("/v1/work", works=[{"key": f"{name}:1"}, {"key": f"{name}:2"}])
    for id in ("i-1", quote(f"{name}-ann/i-1", safe="")):
        for what in ("heartbeat", "leave", "claim"):
            body = {"number": 1, "attempt": "b", "types": [name]} if what == "claim" else {}
            answer = bob.ask("POST", f"/v1/instances/{id}/{what}", body)
            assert answer.status in (410, 422) or answer.json["state"] == "dead", answer.everything
    assert bob.ask("POST", f"/v1/work/{name}:1/assign", {"attempt": "b", "id": "i-1"}).status == 410
    assert bob.join("i-1")["id"] == f"{name}-bob/i-1"  # another one
    bob.on("/v1/instances/i-1/heartbeat", drain=True)
    bob.on("/v1/instances/i-1/leave")
    given = claim(ann, "i-1", 1, name).json["works"]
    assert [each["key"] for each in given] == [f"{name}:1", f"{name}:2"]
    lock = scene.boss.ask("GET", f"/v1/locks/{name}:1").json
    assert lock["holder"]["owner"] == f"{name}-ann/i-1"
    # Its attempts are the proof, as ever; whoever has none finishes nothing.
    theft = {"attempt": "b", "token": given[0]["token"], "ending": "completed"}
    assert bob.ask("POST", f"/v1/work/{name}:1/finish", theft).status == 409


def test_ids_and_names_are_shown_as_nobody_else_can_have_them(scene, name):
    ann = scene.somebody("admin:instance:*", f"admin:{name}:*", name=f"{name}-ann")
    ann.join("i-1", name="boss/engine")
    full = f"{name}-ann/i-1"
    ann.on(f"/v1/work/{name}:1/assign", attempt="a", id="i-1")
    shown = {each["id"]: each for each in ann.ask("GET", "/v1/instances?limit=1000").json["instances"]}
    assert shown[full]["name"] == f"{name}-ann/boss/engine"
    history = ann.ask("GET", f"/v1/locks/{quote(f'instance:{full}', safe='')}/history").json["items"]
    assert [(each["kind"], each["owner"]) for each in history] == [("joined", f"{name}-ann/boss/engine")]
    for said in ("i-1", full):  # as its own principal calls it, and as it is shown
        found = ann.ask("GET", f"/v1/work?{urlencode({'instance': said})}").json["works"]
        assert [(each["key"], each["instance"]) for each in found] == [(f"{name}:1", full)]
    found = scene.boss.ask("GET", f"/v1/work?{urlencode({'instance': full})}").json["works"]
    assert len(found) == 1
    assert scene.boss.ask("GET", "/v1/work?instance=i-1").json["works"] == []


def test_an_instance_needs_a_right_to_its_own_key(scene, name):
    ann = scene.somebody(f"acquire:instance:{name}-ann/web-*", name=f"{name}-ann")
    assert ann.join("web-1")["state"] == "alive"
    assert ann.ask("POST", "/v1/instances", {"id": "db-1"}).status == 403
    for what in ("heartbeat", "leave", "claim"):
        assert ann.ask("POST", f"/v1/instances/db-1/{what}", {"nonsense": 1}).status == 403
    nobody = scene.somebody("acquire:instance:other/*", name=f"{name}-bob")
    assert nobody.ask("POST", "/v1/instances", {"id": "web-1"}).status == 403


@pytest.mark.parametrize(
    ("right", "types", "status"),
    [
        ("acquire:{}:*", ["{}"], 200),
        ("acquire:{}*", ["{}", "{}x"], 200),
        ("admin:*", ["{}", ""], 200),
        ("acquire:{}:*", ["{}", "other"], 403),
        ("acquire:{}:*", [""], 403),  # keys without a colon: only who may have all
        ("acquire:{}:1*", ["{}"], 403),
        ("acquire:{}", ["{}"], 403),
        ("acquire:{}:*", ["{}x"], 403),
        ("observe:{}:*", ["{}"], 403),
        ("acquire:{}:*", [], 200),
    ],
)
def test_who_claims_work_of_a_type_may_have_any_of_it(scene, name, right, types, status):
    ann = scene.somebody("acquire:instance:*", right.format(name), name=f"{name}-ann")
    ann.join("i-1")
    answer = claim(ann, "i-1", 1, *(each.format(name) for each in types))
    assert answer.status == status, answer.everything


def test_an_offer_with_one_key_that_is_not_allowed_does_nothing(scene, name):
    ann = scene.somebody(f"acquire:{name}:*", name=f"{name}-ann")
    works = [{"key": f"{name}:1"}, {"key": "other:1"}]
    assert ann.ask("POST", "/v1/work", {"works": works}).status == 403
    assert scene.boss.ask("GET", f"/v1/work/{name}:1").status == 404
    assert ann.ask("POST", "/v1/work", {"works": works[:1]}).status == 200
    assert ann.ask("GET", f"/v1/work/{name}:1").status == 403  # to have work done is not to look at it
    assert ann.ask("DELETE", f"/v1/work/{name}:1").status == 403  # nor to forget it
    operator = scene.somebody(f"break:{name}:*")
    assert operator.ask("DELETE", f"/v1/work/{name}:1").json["work"]["state"] == "offered"


def test_whoever_looks_at_all_instances_and_work_sees_exactly_what_they_may(scene, name):
    owners = [scene.somebody("acquire:*", name=f"{name}-{who}") for who in ("a", "b", "c")]
    for who in owners:
        for number in range(3):
            who.join(f"i-{number}")
    keys = [f"{name}-{letter}:{number}" for letter in "abc" for number in range(3)]
    scene.boss.on("/v1/work", works=[{"key": key} for key in keys])
    ann = scene.somebody(
        f"observe:instance:{name}-b/*",
        f"observe:instance:{name}-a/i-1",
        f"observe:{name}-b:*",
        f"observe:{keys[0]}",
    )
    for limit in (1, 2, 100):
        assert list(paged(ann, "/v1/instances", "instances", "id", limit)) == [
            f"{name}-a/i-1",
            *(f"{name}-b/i-{number}" for number in range(3)),
        ]
        assert list(paged(ann, "/v1/work", "works", "key", limit)) == [keys[0], *keys[3:6]]
    counts = ann.ask("GET", "/v1/work-counts").json["items"]
    assert [each["type"] for each in counts] == [f"{name}-b"]  # of the other type they may see only one
    everything = scene.boss.ask("GET", "/v1/work-counts").json["items"]
    assert {f"{name}-{letter}" for letter in "abc"} <= {each["type"] for each in everything}


def paged(who, path, items, id, limit):
    after = ""
    while after is not None:
        page = who.ask("GET", f"{path}?{urlencode({'limit': limit, 'after': after})}").json
        for each in page[items]:
            yield each[id]
        after = page["after"]


def test_counts_of_keys_without_a_type_are_for_those_who_see_everything(scene, name):
    scene.boss.on("/v1/work", works=[{"key": name}])
    assert "" in [each["type"] for each in scene.boss.ask("GET", "/v1/work-counts").json["items"]]
    some = scene.somebody(f"observe:{name}*", "observe:a*")
    assert some.ask("GET", "/v1/work-counts").json["items"] == []


def test_who_is_woken_for_work_hears_its_own_id_and_only_of_what_it_may_have(scene, name):
    ann = scene.somebody("acquire:instance:*", f"acquire:{name}:*", name=f"{name}-ann")
    with listening(ann, "/v1/signals") as listener:
        address = json.loads(listener.until("^data: ").removeprefix("data: "))["address"]
        client = {"instance": address, "host": "h", "pid": 1}
        ann.join("i-1")
        scene.boss.join(f"{name}-theirs")
        # Somebody who may has it sent to her address; she hears nothing of it.
        assert claim(scene.boss, f"{name}-theirs", 1, f"{name}", f"{name}-x", client=client).status == 200
        assert claim(ann, "i-1", 1, name, client=client).status == 200
        scene.boss.on("/v1/work", works=[{"key": f"{name}-x:1"}])
        scene.boss.on("/v1/work", works=[{"key": f"{name}:1"}, {"key": f"{name}:2"}])
        told = json.loads(listener.until('"work"').removeprefix("data: "))
        assert told == {"kind": "work", "key": name, "attempt": "i-1", "expires_in": 0.0}
        assert "theirs" not in listener.seen
        assert f"{name}-x" not in listener.seen


def test_events_of_instances_are_seen_by_who_may_observe_their_keys(scene, name):
    ann = scene.somebody("acquire:*", name=f"{name}-ann")
    watcher = scene.somebody(f"observe:instance:{name}-ann/*")
    other = scene.somebody("observe:instance:other*", f"observe:{name}:*")
    with (
        listening(watcher, "/v1/events?prefix=instance:") as seen,
        listening(other, "/v1/events?prefix=") as unseen,
    ):
        seen.until("^id: ")
        unseen.until("^id: ")
        ann.join("i-1")
        ann.on("/v1/instances/i-1/leave")
        ann.on(f"/v1/work/{name}:last/assign", attempt="a")
        seen.until('"kind":"left"')
        unseen.until('"kind":"assigned"')
        assert f"instance:{name}-ann/i-1" in seen.seen
        assert "instance:" not in unseen.seen


def test_a_client_with_rights_to_its_own_joins_claims_is_woken_and_leaves(scene, name):
    """It calls its instance by the id that it gave it, whatever others see."""
    principal = f"{name}-ann"
    rights = (f"acquire:instance:{principal}/*", f"admin:{name}:*", f"observe:instance:{principal}/*")
    ann = scene.somebody(*rights, name=principal)
    with Holdfast(ann.url) as locks, Holdfast(ann.url) as other, locks.join("engine", capacity=2) as instance:
        claims = instance.claims(name, timeout=30)
        other.offer({f"{name}:{number}": number for number in range(5)})
        done = set()
        for work in claims:
            with work:
                done.add(work.data)
            if len(done) == 5:
                break
        begun = instance.assign(f"{name}:more")
        assert [work.key for work in locks.works(instance=instance.id, state="assigned")] == [f"{name}:more"]
        assert other.work(f"{name}:more").instance == f"{principal}/{instance.id}"
        assert [each.id for each in other.instances()] == [f"{principal}/{instance.id}"]
        begun.complete({"ok": True})
        assert other.work(f"{name}:more").result == {"ok": True}
        instance.leave()
        assert [each.state for each in other.instances()] == ["left"]
