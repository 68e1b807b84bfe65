"""Instances: who has joined, who is still there, who has left, who has died."""

from __future__ import annotations

import pytest

from holdfast.core.cluster import Beat, InstancePage, InstanceView, instance_key
from holdfast.core.data import replace
from holdfast.core.events import Event, HistoryLevel
from holdfast.testing.conformance.asker import CLIENT, OTHER_CLIENT, Asker, MakeStore

HOUR = 3600.0
ENGINE = InstanceView(
    id="e-1",
    name="engine",
    host="alpha",
    pid=101,
    version="",
    state="alive",
    capacity=8,
    assigned=0,
    joined_at=100.0,
    beat_at=100.0,
    expires_in=90.0,
)


class Instances:
    """An instance lives from heartbeat to heartbeat, and never comes back."""

    def test_who_joins_is_alive_for_its_ttl(self, ask: Asker) -> None:
        assert ask.join(now=100.0, ttl=90.0) == Beat("alive", 90.0, 1, 100.0)
        assert ask.instances(now=100.0) == InstancePage((ENGINE,))

    def test_nobody_has_joined(self, ask: Asker) -> None:
        assert ask.instances(now=100.0) == InstancePage(())

    def test_an_instance_says_what_it_is(self, make_store: MakeStore) -> None:
        other = Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        other.join(
            "e-7", now=100.0, name="o'Brien's \"engine\" ; 引擎 🚂", capacity=3, ttl=5.0, version="2.1-β"
        )
        assert Asker(make_store()).instances(now=101.0).instances == (
            InstanceView(
                "e-7",
                "o'Brien's \"engine\" ; 引擎 🚂",
                "beta",
                202,
                "2.1-β",
                "alive",
                3,
                0,
                100.0,
                100.0,
                4.0,
            ),
        )

    def test_joining_again_is_a_heartbeat(self, ask: Asker) -> None:
        """P6: an answer was lost. What was said first stands."""
        ask.join(now=100.0)
        again = ask.join(now=110.0, name="another", capacity=1, version="3")
        assert again == Beat("alive", 90.0, 1, 110.0)
        assert ask.instance(now=110.0) == replace(ENGINE, beat_at=110.0)
        assert [event.kind for event in ask.history(key="instance:e-1")] == ["joined"]

    def test_joining_again_says_where_we_are_now(self, make_store: MakeStore) -> None:
        mine, other = Asker(make_store()), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        mine.join(now=100.0)
        other.join(now=101.0)
        assert (mine.instance(now=101.0).host, mine.instance(now=101.0).pid) == ("beta", 202)

    def test_joining_again_does_not_bring_back_the_dead(self, ask: Asker) -> None:
        """Ids are never used again."""
        ask.join(now=100.0, ttl=10.0)
        assert ask.join(now=110.0, ttl=10.0) == Beat("dead", 0.0, 0, 110.0)
        ask.join("e-2", now=110.0)
        ask.leave("e-2", now=111.0)
        assert ask.join("e-2", now=112.0) == Beat("left", 0.0, 0, 112.0)

    def test_a_heartbeat_moves_the_end(self, ask: Asker) -> None:
        ask.join(now=100.0)
        assert ask.beat(now=130.0, ttl=60.0) == Beat("alive", 60.0, 1, 130.0)
        assert ask.beat(now=130.0, ttl=90.0) == Beat("alive", 90.0, 1, 130.0)
        assert ask.instance(now=140.0) == replace(ENGINE, beat_at=130.0, expires_in=80.0)

    def test_a_heartbeat_never_moves_the_end_back(self, ask: Asker) -> None:
        """P6: a late copy of an earlier one changes nothing."""
        ask.join(now=100.0, ttl=90.0)
        assert ask.beat(now=101.0, ttl=10.0) == Beat("alive", 89.0, 1, 101.0)

    def test_a_heartbeat_in_the_last_microsecond_is_in_time(self, ask: Asker) -> None:
        ask.join(now=100.0, ttl=10.0)
        assert ask.beat(now=109.999999, ttl=10.0) == Beat("alive", 10.0, 1, 109.999999)

    def test_a_heartbeat_at_the_end_is_too_late(self, ask: Asker) -> None:
        """It learns that it is dead, and stays so."""
        ask.join(now=100.0, ttl=10.0)
        assert ask.beat(now=110.0, ttl=10.0) == Beat("dead", 0.0, 0, 110.0)
        assert ask.beat(now=111.0, ttl=10.0) == Beat("dead", 0.0, 0, 111.0)
        assert ask.instance(now=111.0).state == "dead"
        assert [event.kind for event in ask.history(key="instance:e-1")] == ["joined", "died"]

    def test_the_dead_stay_dead_even_if_time_goes_back(self, ask: Asker) -> None:
        """Once it was declared; before that nobody can know."""
        ask.join(now=100.0, ttl=10.0)
        ask.beat(now=110.0)
        assert ask.beat(now=105.0) == Beat("dead", 0.0, 0, 105.0)
        assert ask.instance(now=105.0).state == "dead"

    def test_who_never_joined_counts_as_dead(self, ask: Asker) -> None:
        ask.join("e-2", now=100.0)
        for answer in (ask.beat(now=100.0), ask.leave(now=100.0), ask.beat(now=100.0, drain=True)):
            assert answer == Beat("dead", 0.0, 1, 100.0)
        assert [each.id for each in ask.instances(now=100.0).instances] == ["e-2"]
        assert ask.history(key="instance:e-1") == ()

    def test_a_heartbeat_says_where_we_are_now(self, make_store: MakeStore) -> None:
        mine, other = Asker(make_store()), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        mine.join(now=100.0)
        other.beat(now=101.0)
        assert (mine.instance(now=101.0).host, mine.instance(now=101.0).pid) == ("beta", 202)

    def test_draining_is_for_good(self, ask: Asker) -> None:
        """It lives on, and does not count among those who take work."""
        ask.join(now=100.0)
        ask.join("e-2", now=100.0)
        assert ask.beat(now=101.0, drain=True) == Beat("draining", 90.0, 1, 101.0)
        assert ask.beat(now=102.0) == Beat("draining", 90.0, 1, 102.0)
        assert ask.join(now=103.0) == Beat("draining", 90.0, 1, 103.0)
        assert ask.instance(now=103.0).state == "draining"
        assert ask.beat("e-2", now=103.0).living == 1

    def test_draining_is_noted_once(self, ask: Asker) -> None:
        """P6."""
        ask.join(now=100.0)
        ask.beat(now=101.0, drain=True)
        ask.beat(now=102.0, drain=True)
        assert [event.kind for event in ask.history(key="instance:e-1")] == ["joined", "draining"]

    def test_who_drains_dies_like_anybody(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.beat(now=100.0, drain=True, ttl=90.0)
        assert ask.instance(now=189.999999).state == "draining"
        assert ask.instance(now=190.0).state == "dead"
        assert ask.beat(now=190.0, drain=True) == Beat("dead", 0.0, 0, 190.0)

    def test_the_dead_do_not_drain(self, ask: Asker) -> None:
        ask.join(now=100.0, ttl=10.0)
        ask.beat(now=110.0, drain=True)
        assert [event.kind for event in ask.history(key="instance:e-1")] == ["joined", "died"]

    def test_who_has_left_is_gone(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.join("e-2", now=100.0)
        assert ask.leave(now=101.0) == Beat("left", 0.0, 1, 101.0)
        assert ask.instance(now=101.0) == replace(ENGINE, state="left", expires_in=0.0)
        for answer in (ask.beat(now=102.0), ask.beat(now=102.0, drain=True), ask.leave(now=102.0)):
            assert answer == Beat("left", 0.0, 1, 102.0)
        assert ask.instance(now=300.0).state == "left"
        assert [event.kind for event in ask.history(key="instance:e-1")] == ["joined", "left"]

    def test_the_dead_cannot_leave(self, ask: Asker) -> None:
        ask.join(now=100.0, ttl=10.0)
        assert ask.leave(now=110.0) == Beat("dead", 0.0, 0, 110.0)
        assert ask.instance(now=110.0).state == "dead"
        assert [event.kind for event in ask.history(key="instance:e-1")] == ["joined"]

    def test_the_living_are_those_who_take_work_at_that_instant(self, ask: Asker) -> None:
        for number, ttl in enumerate((10.0, 20.0, 30.0, 40.0), start=1):
            ask.join(f"e-{number}", now=100.0, ttl=ttl)
        ask.beat("e-4", now=100.0, drain=True, ttl=40.0)
        beats = [ask.beat("e-3", now=now, ttl=1.0).living for now in (109.999999, 110.0, 119.999999, 120.0)]
        assert beats == [3, 2, 2, 1]

    def test_others_are_declared_dead_by_whoever_heartbeats(self, ask: Asker) -> None:
        """The event is written once, at the time of who noticed."""
        ask.join(now=100.0, ttl=10.0)
        ask.join("e-2", now=100.0, ttl=30.0)
        ask.join("e-3", now=100.0, ttl=15.0)
        ask.beat("e-2", now=109.999999)
        assert [event.kind for event in ask.history(key="instance:e-1")] == ["joined"]
        ask.beat("e-2", now=112.0)
        ask.beat("e-2", now=113.0)
        _, died = ask.history(key="instance:e-1")
        assert died == Event("instance:e-1", 2, "died", 112.0, 0, "engine", id=died.id)
        assert [event.kind for event in ask.history(key="instance:e-3")] == ["joined"]

    def test_nobody_is_declared_dead_by_a_look(self, ask: Asker) -> None:
        ask.join(now=100.0, ttl=10.0)
        assert ask.instance(now=110.0) == replace(ENGINE, state="dead", expires_in=0.0)
        assert ask.instance(now=109.0).state == "alive"
        assert [event.kind for event in ask.history(key="instance:e-1")] == ["joined"]

    def test_a_hundred_others_are_declared_dead_at_a_time(self, ask: Asker) -> None:
        """Those first whose end came first; and who asks learns of itself in any case."""
        for number in range(103):
            ask.join(f"e-{number:03}", now=100.0, ttl=10.0 + (number % 2) / 10)
        ask.beat("e-101", now=120.0)
        died = [e.key for e in ask.watch("instance:", after=0).events if e.kind == "died"]
        assert len(died) == 101
        assert "instance:e-101" in died
        assert {f"instance:e-{number:03}" for number in range(0, 103, 2)} <= set(died)
        ask.beat("nobody", now=120.0)
        assert sum(e.kind == "died" for e in ask.watch("instance:", after=0).events) == 103

    @pytest.mark.parametrize("level", ["all", "notable", "none"])
    def test_members_can_be_watched(self, make_store: MakeStore, level: HistoryLevel) -> None:
        ask = Asker(make_store(history=level))
        ask.join(now=100.0, name="one")
        ask.beat(now=101.0, drain=True)
        ask.leave(now=102.0)
        ask.join("e-2", now=103.0, name="two", ttl=10.0)
        ask.beat("e-2", now=113.0)
        seen = [(e.key, e.number, e.kind, e.at, e.token, e.owner) for e in ask.watch("instance:").events]
        expected = [
            ("instance:e-1", 1, "joined", 100.0, 0, "one"),
            ("instance:e-1", 2, "draining", 101.0, 0, "one"),
            ("instance:e-1", 3, "left", 102.0, 0, "one"),
            ("instance:e-2", 1, "joined", 103.0, 0, "two"),
            ("instance:e-2", 2, "died", 113.0, 0, "two"),
        ]
        assert sorted(seen) == ([] if level == "none" else expected)
        assert ask.instance("e-2", now=113.0).state == "dead"

    def test_the_key_of_an_instance_is_a_key_like_any_other(self, make_store: MakeStore) -> None:
        """Somebody has a lock of that name: both are numbered together, and neither is in the other's way."""
        ask = Asker(make_store(history="all"))
        key = instance_key("e-1")
        first = ask.take("a-1", now=100.0, key=key)
        ask.join(now=101.0)
        ask.release("a-1", first.token, now=102.0, key=key)
        ask.leave(now=103.0)
        assert ask.take("b-1", now=104.0, key=key).token > first.token
        assert [(event.number, event.kind) for event in ask.history(key=key)] == [
            (1, "granted"),
            (2, "joined"),
            (3, "released"),
            (4, "left"),
            (5, "granted"),
        ]

    def test_the_key_of_an_instance_can_be_locked_after_it_has_joined(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(history="all"))
        ask.join(now=101.0)
        ask.take("a-1", now=102.0, key="instance:e-1")
        ask.beat(now=103.0, drain=True)
        kinds = [(event.number, event.kind) for event in ask.history(key="instance:e-1")]
        assert kinds == [(1, "joined"), (2, "granted"), (3, "draining")]
        assert ask.inspect(now=103.0, key="instance:e-2") is None

    def test_instances_are_no_locks(self, ask: Asker) -> None:
        ask.join(now=100.0)
        assert ask.page(now=100.0).locks == ()
        assert ask.inspect(now=100.0, key="instance:e-1") is None

    def test_instances_are_listed_in_the_order_of_their_ids_a_page_at_a_time(self, ask: Asker) -> None:
        ids = ["b", "a-10", "a-2", "Z", "_x", "e" * 64, "-"]
        for number, each in enumerate(ids):
            ask.join(each, now=100.0 + number)
        seen: list[str] = []
        after: str | None = ""
        while after is not None:
            page = ask.instances(now=110.0, after=after, limit=2)
            seen += [each.id for each in page.instances]
            assert page.after in (None, seen[-1])
            after = page.after
        assert seen == sorted(ids)
        assert ask.instances(now=110.0, limit=len(ids)).after is None

    def test_all_clients_see_the_same_instances(self, make_store: MakeStore) -> None:
        mine, other = Asker(make_store(CLIENT)), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        assert mine.join("e-1", now=100.0).living == 1
        assert other.join("e-2", now=100.0).living == 2
        assert mine.instances(now=101.0) == other.instances(now=101.0)

    def test_who_is_gone_is_forgotten_after_a_while(self, ask: Asker) -> None:
        ask.join("died", now=100.0, ttl=20.0)
        ask.join("left", now=100.0)
        ask.join("lives", now=100.0, ttl=9 * HOUR)
        ask.leave("left", now=110.0)
        ask.sweep(now=109.999999 + HOUR)
        assert [each.id for each in ask.instances(now=200.0).instances] == ["died", "left", "lives"]
        ask.sweep(now=110.0 + HOUR)
        assert [each.id for each in ask.instances(now=200.0).instances] == ["died", "lives"]
        ask.sweep(now=120.0 + HOUR)
        assert [each.id for each in ask.instances(now=200.0).instances] == ["lives"]
        assert ask.beat("left", now=200.0 + HOUR).state == "dead"

    def test_so_many_are_forgotten_at_a_time(self, ask: Asker) -> None:
        """R4: and a sweep goes on until there are none."""
        for number in range(5):
            ask.join(f"e-{number}", now=100.0, ttl=10.0)
        left: list[int] = []
        after: str | None = ""
        while after is not None and len(left) < 10:
            after = ask.sweep(now=110.0 + HOUR, limit=2, after=after).after
            left.append(len(ask.instances(now=100.0).instances))
        assert left == [3, 1, 0]

    def test_the_store_has_the_time_of_an_instance(self, ask: Asker) -> None:
        joined = ask.join(now=None, ttl=60.0)
        assert (joined.state, joined.living) == ("alive", 1)
        assert 0 < joined.expires_in <= 60.0  # a store may look at its clock once more to see it
        assert joined.at > 1_500_000_000  # seconds since 1970
        beat = ask.beat(now=None, ttl=1000.0)
        assert (beat.state, beat.at >= joined.at) == ("alive", True)
        assert 60.0 < beat.expires_in <= 1000.0
        (seen,) = ask.instances(now=None).instances
        assert seen.joined_at <= joined.at <= seen.beat_at <= beat.at
        assert (seen.state, 0 < seen.expires_in <= 1000.0) == ("alive", True)
        assert ask.leave(now=None).state == "left"
