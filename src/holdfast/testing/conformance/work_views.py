"""Looking at work: one piece, pages of it, how much there is; and forgetting it."""

from __future__ import annotations

from holdfast.core.cluster import Ended, WorkCount, WorkPage, WorkState
from holdfast.core.events import Event
from holdfast.core.requests import Busy
from holdfast.testing.conformance.asker import Asker
from holdfast.testing.conformance.names import KEYS


class WorkViews:
    """What only reads changes nothing, and what is forgotten is as if it had never been."""

    def test_there_may_be_none(self, ask: Asker) -> None:
        assert ask.find_work("job:1", now=100.0) is None
        assert ask.works(now=100.0) == WorkPage(())
        assert ask.counts(now=100.0) == ()

    def test_work_is_listed_in_the_order_of_its_keys(self, ask: Asker) -> None:
        ask.offer(*reversed(KEYS), now=100.0)
        assert [work.key for work in ask.works(now=100.0, limit=1000).works] == sorted(KEYS)

    def test_pages_go_on_where_they_ended(self, ask: Asker) -> None:
        ask.offer(*KEYS, now=100.0)
        seen: list[str] = []
        after: str | None = ""
        while after is not None:
            page = ask.works(now=100.0, after=after, limit=10)
            seen += [work.key for work in page.works]
            assert page.after in (None, seen[-1])
            after = page.after
        assert seen == sorted(KEYS)
        assert ask.works(now=100.0, limit=len(KEYS)).after is None
        assert ask.works(now=100.0, limit=len(KEYS) - 1).after == sorted(KEYS)[-2]

    def test_the_key_of_any_work_can_be_a_prefix_and_a_cursor(self, ask: Asker) -> None:
        ask.offer(*KEYS, now=100.0)
        for key in KEYS:
            found = [work.key for work in ask.works(now=100.0, prefix=key, limit=1000).works]
            assert found == sorted(other for other in KEYS if other.startswith(key))
            found = [work.key for work in ask.works(now=100.0, after=key, limit=1000).works]
            assert found == sorted(other for other in KEYS if other > key)

    def test_work_can_be_found_by_state(self, ask: Asker) -> None:
        self._all_states(ask)
        states: tuple[WorkState, ...] = ("offered", "assigned", "completed", "failed")
        found = {state: [w.key for w in ask.works(now=200.0, state=state).works] for state in states}
        assert found == {
            "offered": ["a:1", "a:2", "b:1"],
            "assigned": ["a:3"],
            "completed": ["a:5"],
            "failed": ["a:4"],
        }

    def test_work_can_be_found_by_instance(self, ask: Asker) -> None:
        """That has it, or had it last; all must fit."""
        ask.join(now=100.0)
        ask.join("e-2", now=100.0)
        first = ask.begin("job:1", "a-1", now=100.0, id="e-1")
        ask.begin("job:2", "a-1", now=100.0, id="e-2")
        ask.begin("job:3", "a-1", now=100.0, id="e-1")
        ask.begin("other:4", "a-1", now=100.0, id="e-1")
        ask.offer("job:5", now=100.0)
        ask.finish(first, "returned", now=101.0)

        def found(**which: str) -> list[str]:
            return [work.key for work in ask.works(now=102.0, **which).works]  # type: ignore[arg-type]

        assert found(instance="e-1") == ["job:1", "job:3", "other:4"]
        assert found(instance="e-1", state="assigned") == ["job:3", "other:4"]
        assert found(instance="e-1", state="assigned", prefix="job:") == ["job:3"]
        assert found(instance="e-1", state="assigned", after="job:3") == ["other:4"]
        assert found(instance="") == ["job:5"]
        assert found(instance="e-3") == []

    def test_work_is_counted_by_type(self, ask: Asker) -> None:
        """What has completed is left out; the wait is that of the oldest which is offered."""
        self._all_states(ask)
        ask.offer("plain", "C:1", now=100.0, delay=500.0)
        assert ask.counts(now=200.0) == (
            WorkCount("", 1, 0, 0, 0.0),
            WorkCount("C", 1, 0, 0, 0.0),
            WorkCount("a", 2, 1, 1, 100.0),
            WorkCount("b", 1, 0, 0, 97.0),
        )
        assert [count.waiting for count in ask.counts(now=600.25)] == [0.25, 0.25, 500.25, 497.25]

    def test_a_type_with_nothing_but_ended_work(self, ask: Asker) -> None:
        ask.finish(ask.begin("done:1", "a-1", now=100.0), now=100.0)
        ask.finish(ask.begin("fail:1", "a-1", now=100.0), "failed", now=100.0)
        ask.begin("run:1", "a-1", now=100.0)
        assert ask.counts(now=200.0) == (WorkCount("fail", 0, 0, 1), WorkCount("run", 0, 1, 0))

    def test_types_are_counted_apart_however_alike_they_are(self, ask: Asker) -> None:
        types = sorted({key.partition(":")[0][:240] for key in KEYS})
        ask.offer(*(f"{type}:1" for type in types), now=100.0)
        assert [(count.type, count.offered) for count in ask.counts(now=100.0)] == [
            (type, 1) for type in types
        ]

    def test_work_can_be_forgotten(self, ask: Asker) -> None:
        self._all_states(ask)
        for key in ("a:1", "a:2", "a:4", "a:5"):
            work = ask.work(key, now=200.0)
            assert ask.forget(key, now=200.0) == Ended(work)
            assert ask.find_work(key, now=200.0) is None
            assert ask.forget(key, now=200.0) is None
        assert [work.key for work in ask.works(now=200.0).works] == ["a:3", "b:1"]

    def test_what_was_forgotten_is_in_the_history_with_who_did_it(self, ask: Asker) -> None:
        """Also if nobody ever had it; and once, however often it is asked for."""
        ask.offer("job:1", now=100.0)
        given = ask.begin("job:2", "a-1", now=100.0)
        ask.finish(given, now=101.0)
        for key in ("job:1", "job:2", "job:2"):
            ask.forget(key, now=102.0, by="olga")
        (first,) = ask.history(key="job:1")
        assert first == Event("job:1", 1, "forgotten", 102.0, 0, None, "olga", id=first.id)
        done, second = ask.history(key="job:2")
        assert (done.kind, second.kind, second.number) == ("completed", "forgotten", 2)
        assert (second.token, second.by, second.owner) == (given.token, "olga", None)

    def test_what_somebody_has_is_not_forgotten(self, ask: Asker) -> None:
        given = ask.begin("job:1", "a-1", now=100.0)
        answer = ask.forget("job:1", now=103.0)
        assert isinstance(answer, Busy)
        assert (answer.holder.owner, answer.holder.token, answer.expires_in) == ("a-1", given.token, 7.0)
        assert ask.renew("a-1", given.token, now=104.0, key="job:1").outcome == "renewed"
        assert ask.work("job:1", now=104.0).state == "assigned"

    def test_what_was_never_there_is_not_forgotten(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, key="job:1")
        assert ask.forget("job:1", now=100.0) is None
        assert ask.look(now=100.0, key="job:1").state == "held"

    def test_what_is_forgotten_can_be_offered_as_new(self, ask: Asker) -> None:
        """P1: its tokens go on growing."""
        given = ask.begin("job:1", "a-1", now=100.0)
        ask.finish(given, now=101.0)
        ask.forget("job:1", now=102.0)
        assert ask.offer("job:1", now=102.0).new == (True,)
        assert ask.begin("job:1", "b-1", now=50.0).token > given.token

    def test_forgetting_leaves_the_lock_alone(self, ask: Asker) -> None:
        ask.offer("job:1", now=100.0)
        plain = ask.take("a-1", now=100.0, key="job:1")
        assert isinstance(ask.forget("job:1", now=101.0), Ended)
        assert ask.renew("a-1", plain.token, now=102.0, key="job:1").outcome == "renewed"

    @staticmethod
    def _all_states(ask: Asker) -> None:
        ask.offer("a:1", "a:2", now=100.0)
        ask.offer("b:1", now=100.0, delay=3.0)
        ask.begin("a:3", "a-1", now=100.0, ttl=1000.0)
        ask.finish(ask.begin("a:4", "a-1", now=100.0), "failed", now=101.0)
        ask.finish(ask.begin("a:5", "a-1", now=100.0), now=101.0)
