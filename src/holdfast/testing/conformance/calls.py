"""Calling instances to work: those who wait for it, one more than there is of it, and nobody else."""

from __future__ import annotations

import queue
from typing import Any

from holdfast.core.cluster import Claim, Finish, Join, Offer, OfferedWork
from holdfast.core.requests import Request, Signal
from holdfast.testing.conformance.addresses import behind
from holdfast.testing.conformance.asker import CLIENT, OTHER_CLIENT, Asker, MakeStore, arrivals

WAIT = 10.0  # for a signal that crosses processes; it is there at once, or the test fails


def waiting(
    ask: Asker, id: str, *, now: float = 100.0, types: tuple[str, ...] = ("job",), ttl: float = 90.0
) -> None:
    """Have an instance ask for work that there is not."""
    ask.join(id, now=now, ttl=ttl)
    assert ask.claim(id, now=now, types=types).works == ()


def listen(ask: Asker) -> queue.Queue[Signal]:
    """Return where the signals for a client arrive."""
    arrived = arrivals(ask.store)
    ask.store.be_reachable()
    return arrived


class Calls:
    """A signal is ``work``, the type, and the id of the instance. Who wants nothing is left alone."""

    def test_who_waits_for_work_is_called(self, ask: Asker) -> None:
        waiting(ask, "e-1")
        ask.offer("job:1", now=101.0)
        assert ask.full_signals() == (Signal("work", "job", "e-1"),)

    def test_who_does_not_wait_is_not(self, ask: Asker) -> None:
        """It never asked, is full, got all that it wanted, or waits for something else."""
        ask.join("never", now=100.0)
        ask.join("full", now=100.0, capacity=1)
        ask.begin("own:1", "a-1", now=100.0, id="full")
        ask.claim("full", now=100.0)
        ask.join("served", now=100.0)
        ask.offer("job:0", now=100.0)
        ask.claim_one("served", now=100.0)
        waiting(ask, "other", types=("other", "jobs", "jo", "Job", ""))
        ask.offer("job:1", now=101.0)
        assert ask.signals() == []

    def test_who_got_something_does_not_wait_for_more(self, ask: Asker) -> None:
        """It may be busy with it, and asks again when it is not; only then does it wait."""
        ask.join(now=100.0)
        ask.offer("job:1", now=100.0)
        ask.claim(now=100.0, limit=2)
        ask.offer("job:2", now=101.0)
        assert ask.signals() == []
        ask.claim(number=2, now=101.0)
        ask.claim(number=3, now=101.0)
        ask.offer("job:3", now=101.0)
        assert ask.signals() == [("work", "e-1")]

    def test_who_got_nothing_because_it_was_put_off_or_left_to_others_waits(self, ask: Asker) -> None:
        ask.join(now=100.0, capacity=2)
        ask.begin("own:1", "a-1", now=100.0, id="e-1")
        ask.offer("job:1", now=100.0)
        assert ask.claim(now=100.0, spread=1.0).works == ()
        ask.offer("job:2", now=100.1)
        assert ask.signals() == [("work", "e-1")]
        ask.take("b-1", now=100.1, key="job:1")
        assert ask.claim(number=2, now=100.6, spread=1.0, limit=1).works == ()
        ask.offer("job:3", now=100.7)
        assert ask.signals() == [("work", "e-1")]

    def test_a_late_copy_does_not_change_what_is_waited_for(self, ask: Asker) -> None:
        """P6."""
        waiting(ask, "e-1")
        ask.claim(number=2, now=100.0, types=("other",))
        ask.claim(number=1, now=101.0)
        ask.offer("job:1", "other:1", now=102.0)
        assert ask.full_signals() == (Signal("work", "other", "e-1"),)

    def test_a_claim_that_got_enough_waits_for_nothing_any_more(self, ask: Asker) -> None:
        waiting(ask, "e-1")
        ask.offer("job:1", now=101.0)
        ask.signals()
        ask.claim_one(number=2, now=101.0)
        ask.offer("job:2", now=102.0)
        assert ask.signals() == []

    def test_who_waits_is_called_as_often_as_there_is_work(self, ask: Asker) -> None:
        """Until it claims: a signal may be lost."""
        waiting(ask, "e-1")
        ask.offer("job:1", now=101.0)
        ask.offer("job:2", now=102.0)
        assert ask.signals() == [("work", "e-1")] * 2

    def test_who_waits_for_several_types_is_called_for_each(self, ask: Asker) -> None:
        waiting(ask, "e-1", types=("a", "", "b"))
        ask.offer("a:1", "b:1", "plain", "c:1", now=101.0)
        assert set(ask.full_signals()) == {Signal("work", type, "e-1") for type in ("a", "b", "")}

    def test_a_type_is_any_text(self, ask: Asker) -> None:
        types = ("锁 '\"`;%_", "🔒" * 240, "a b", "%", "\\")
        waiting(ask, "e-1", types=types)
        for type in types:
            ask.offer(f"{type}:1", now=101.0)
            assert ask.full_signals() == (Signal("work", type, "e-1"),)

    def test_the_dead_the_draining_and_the_left_are_not_called(self, ask: Asker) -> None:
        for id in ("dies", "drains", "left"):
            waiting(ask, id, ttl=10.0)
        ask.beat("drains", now=101.0, drain=True, ttl=60.0)
        ask.leave("left", now=101.0)
        ask.offer("job:1", now=109.999999)
        assert ask.signals() == [("work", "dies")]
        ask.offer("job:2", now=110.0)
        assert ask.signals() == []

    def test_one_more_is_called_than_there_is_work(self, ask: Asker) -> None:
        """If one of them is gone, another is there; and there is no herd."""
        for number in range(6):
            waiting(ask, f"e-{number}", now=100.0 + number)
        ask.offer("job:1", now=110.0)
        assert ask.signals() == [("work", "e-0"), ("work", "e-1")]
        ask.offer("job:2", "job:3", "job:4", now=110.0)
        assert ask.signals() == [("work", f"e-{number}") for number in range(4)]
        ask.offer(*(f"more:{number}" for number in range(9)), *(f"job:1{n}" for n in range(9)), now=110.0)
        assert ask.signals() == [("work", f"e-{number}") for number in range(6)]

    def test_those_first_whose_last_claim_is_longest_ago(self, ask: Asker) -> None:
        """Then by id. To have joined counts as a claim; a late copy does not."""
        for number in (4, 3, 2, 1):
            waiting(ask, f"e-{number}", now=100.0)
        ask.claim("e-1", 2, now=103.0)
        ask.claim("e-2", 2, now=102.0)
        ask.claim("e-3", 1, now=104.0)
        ask.offer("job:1", now=110.0)
        assert ask.signals() == [("work", "e-3"), ("work", "e-4")]
        ask.offer("job:2", "job:3", now=110.0)
        assert ask.signals() == [("work", "e-2"), ("work", "e-3"), ("work", "e-4")]

    def test_each_type_has_callers_of_its_own(self, ask: Asker) -> None:
        for number in range(4):
            waiting(ask, f"e-{number}", now=100.0 + number, types=("a", "b"))
        ask.offer("a:1", "b:1", "b:2", now=110.0)
        signals = sorted((signal.key, signal.attempt) for signal in ask.full_signals())
        assert signals == [("a", "e-0"), ("a", "e-1"), ("b", "e-0"), ("b", "e-1"), ("b", "e-2")]

    def test_only_for_what_is_new(self, ask: Asker) -> None:
        """P6."""
        waiting(ask, "e-1")
        ask.offer("job:1", now=101.0)
        ask.signals()
        ask.offer("job:1", now=102.0)
        ask.offer("job:1", now=102.0, again=True)
        assert ask.signals() == []

    def test_only_for_what_is_due(self, ask: Asker) -> None:
        """What is for later each finds by the time it was told."""
        waiting(ask, "e-1")
        ask.offer("job:1", now=101.0, delay=0.000001)
        ask.offer("job:2", now=101.0, at=101.5)
        assert ask.signals() == []
        ask.offer("job:3", now=101.0, at=101.0)
        ask.offer("job:4", now=101.0, delay=50.0, at=3.0)
        assert ask.signals() == [("work", "e-1")] * 2

    def test_what_is_offered_again_is_called_for(self, ask: Asker) -> None:
        ask.finish(ask.begin("job:1", "a-1", now=100.0), now=100.0)
        waiting(ask, "e-1")
        ask.offer("job:1", now=101.0, again=True)
        assert ask.signals() == [("work", "e-1")]

    def test_what_was_finished_and_is_offered_again_is_called_for(self, ask: Asker) -> None:
        """As for an offer of one."""
        for number in range(3):
            waiting(ask, f"e-{number}", now=100.0 + number)
        two = [("work", "e-0"), ("work", "e-1")]
        ask.finish(ask.begin("job:1", "a-1", now=110.0), "returned", now=110.0)
        assert ask.signals() == two
        ask.finish(ask.begin("job:1", "a-2", now=110.0), "failed", now=110.0, retry=0.0)
        assert ask.signals() == two
        ask.finish(ask.begin("job:1", "a-3", now=110.0), "completed", now=110.0, at=110.0)
        assert ask.signals() == two

    def test_what_has_ended_or_is_for_later_is_not_called_for(self, ask: Asker) -> None:
        waiting(ask, "e-1")
        ask.finish(ask.begin("job:1", "a-1", now=101.0), "returned", now=101.0, at=101.000001)
        ask.finish(ask.begin("job:2", "a-1", now=101.0), "failed", now=101.0, retry=0.5)
        ask.finish(ask.begin("job:3", "a-1", now=101.0), "completed", now=101.0, at=102.0)
        ask.finish(ask.begin("job:4", "a-1", now=101.0), "completed", now=101.0)
        ask.finish(ask.begin("job:5", "a-1", now=101.0), "failed", now=101.0)
        assert ask.signals() == []

    def test_finishing_twice_calls_once(self, ask: Asker) -> None:
        """P6."""
        waiting(ask, "e-1")
        given = ask.begin("job:1", "a-1", now=101.0)
        ask.finish(given, "returned", now=101.0)
        ask.signals()
        ask.finish(given, "returned", now=102.0)
        assert ask.signals() == []

    def test_who_finishes_too_late_calls_for_it(self, ask: Asker) -> None:
        waiting(ask, "e-1")
        ask.offer("job:1", now=100.0, delay=0.5, max_tries=2)
        ask.finish(ask.begin("job:1", "a-1", now=101.0), now=111.0)
        assert ask.signals() == [("work", "e-1")]
        ask.finish(ask.begin("job:1", "a-2", now=111.0), now=121.0)
        assert (ask.work("job:1", now=121.0).state, ask.signals()) == ("failed", [])

    def test_who_leaves_calls_the_others_for_all_it_had(self, ask: Asker) -> None:
        """As for an offer of all of it; and never itself."""
        ask.join(now=99.0)
        ask.offer("job:1", "job:2", "other:1", now=99.0)
        ask.claim(now=99.0, types=("job", "other", "more"))
        for number in range(2, 7):
            waiting(ask, f"e-{number}", now=99.0 + number, types=("job",))
        ask.leave(now=110.0)
        assert ask.signals() == [("work", f"e-{number}") for number in (2, 3, 4)]

    def test_who_leaves_with_nothing_calls_nobody(self, ask: Asker) -> None:
        waiting(ask, "e-1")
        waiting(ask, "e-2")
        ask.leave("e-2", now=101.0)
        assert ask.signals() == []

    def test_to_claim_to_assign_and_to_look_calls_nobody(self, ask: Asker) -> None:
        """Not even if abandoned work is found: who found it is there to take it."""
        waiting(ask, "e-1")
        ask.join("e-2", now=100.0)
        ask.begin("job:1", "a-1", now=101.0)
        ask.begin("job:2", "a-1", now=101.0)
        ask.begin("job:3", "a-1", now=101.0)
        ask.claim("e-2", 1, now=111.0, limit=1)
        ask.begin("job:2", "b-1", now=111.0)
        ask.forget("job:3", now=111.0)
        ask.works(now=111.0)
        ask.beat("e-2", now=112.0)
        ask.sweep(now=112.0)
        assert ask.signals() == []

    # Where they are

    def test_an_instance_is_called_where_it_is(self, make_store: MakeStore) -> None:
        store, other = make_store(CLIENT), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        mine, arrived = Asker(store), listen(other)
        waiting(other, "e-2")
        mine.offer("job:1", now=101.0)
        if store.traits.signals:
            assert arrived.get(timeout=WAIT) == Signal("work", "job", "e-2")
        assert arrived.empty()
        assert mine.signals() == []

    def test_an_instance_behind_a_client_is_called_through_it(self, make_store: MakeStore) -> None:
        store, home = make_store(CLIENT), make_store(OTHER_CLIENT)
        mine, other = Asker(store), Asker(home, behind(OTHER_CLIENT, "s-1"))
        arrived = listen(other)
        waiting(other, "e-2")
        mine.offer("锁:1", "job:1", now=101.0)
        if store.traits.signals:
            assert arrived.get(timeout=WAIT) == Signal("work", "job", "e-2", to="s-1")
        assert arrived.empty()

    def test_a_client_calls_those_behind_it_by_itself(self, ask: Asker) -> None:
        inner = Asker(ask.store, behind(CLIENT, "s-1"))
        waiting(inner, "e-1")
        ask.offer("job:1", now=101.0)
        assert inner.full_signals() == (Signal("work", "job", "e-1", to="s-1"),)

    def test_claims_and_heartbeats_say_where_to_call(self, make_store: MakeStore) -> None:
        """Not so the copy of an earlier claim."""
        store, other = make_store(CLIENT), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        mine = Asker(store)
        waiting(other, "e-1")
        mine.claim("e-1", 1, now=100.5)
        mine.claim("e-1", 2, now=101.0)
        other.claim("e-1", 1, now=101.5)
        mine.offer("job:1", now=102.0)
        assert mine.signals() == [("work", "e-1")]
        arrived = listen(other)
        other.beat("e-1", now=103.0)
        mine.offer("job:2", now=104.0)
        if store.traits.signals:
            assert arrived.get(timeout=WAIT) == Signal("work", "job", "e-1")
        assert mine.signals() == []
        mine.beat("e-1", now=105.0)
        mine.offer("job:3", now=106.0)
        assert mine.signals() == [("work", "e-1")]

    def test_without_an_address_nobody_is_called(self, ask: Asker) -> None:
        """It asks again by itself."""
        nowhere = Asker(ask.store, behind(CLIENT, "s-1"))
        nowhere.client = type(CLIENT)("", "alpha", 101)
        waiting(nowhere, "e-1")
        ask.offer("job:1", now=101.0)
        assert nowhere.signals() == []

    # Many at once

    def test_a_group_does_all_of_it_in_its_order(self, ask: Asker) -> None:
        joined, offered, claimed, late, finished, rest = ask.store.execute_many(
            [
                Join("e-1", "engine", CLIENT, 8, 90.0, now=100.0),
                Offer((OfferedWork("job:1"), OfferedWork("job:2")), now=100.0),
                Claim("e-1", 1, "c-1", ("job",), 1, 10.0, CLIENT, now=100.0),
                Claim("e-1", 1, "c-1", ("job",), 1, 10.0, CLIENT, now=100.0),
                Finish("job:1", "c-1.0", 100_000_000, "completed", "7", now=100.0),
                Claim("e-1", 2, "c-2", ("job",), 9, 10.0, CLIENT, now=100.0),
            ]
        )
        assert (joined.state, offered.new, finished.state) == ("alive", (True, True), "completed")
        assert ([work.key for work in claimed.works], late.works) == (["job:1"], claimed.works)
        assert [work.key for work in rest.works] == ["job:2"]
        assert ask.signals() == []

    def test_a_group_about_work_can_be_repeated(self, ask: Asker) -> None:
        """P6."""
        group: list[Request[Any]] = [
            Join("e-1", "engine", CLIENT, 8, 90.0, now=100.0),
            Offer((OfferedWork("job:1"), OfferedWork("job:2")), now=100.0),
            Claim("e-1", 1, "c-1", ("job",), 1, 10.0, CLIENT, now=100.0),
        ]
        first, again = ask.store.execute_many(group), ask.store.execute_many(group)
        assert again[0] == first[0]
        assert again[1].new == (False, False)
        assert again[2].works == first[2].works

    def test_who_is_called_by_a_group_is_called_when_it_is_true(self, make_store: MakeStore) -> None:
        """A signal that comes before the commit would have its receiver ask in vain."""
        store, other = make_store(CLIENT), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        waiting(Asker(store), "e-1")
        seen: list[tuple[Signal, bool]] = []
        store.listen(lambda signal: seen.append((signal, other.find_work("a:1", now=101.0) is not None)))
        store.execute_many(
            [
                Offer((OfferedWork("job:1"),), now=101.0),
                Offer((OfferedWork("a:1"),), now=101.0),
            ]
        )
        assert seen == [(Signal("work", "job", "e-1"), True)] or (
            not store.traits.groups and seen == [(Signal("work", "job", "e-1"), False)]
        )
