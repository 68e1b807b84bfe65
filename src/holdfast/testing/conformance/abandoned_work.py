"""Abandoned work: whoever finds that its lease has ended offers it again. Leaving gives it back at once."""

from __future__ import annotations

from holdfast.core.cluster import Assigned, Beat, Claimed, Ended, WorkView, abandoned_for_good
from holdfast.core.events import Event, HistoryLevel
from holdfast.core.requests import Busy, NotHeld
from holdfast.testing.conformance.asker import Asker, MakeStore


def begin(
    ask: Asker,
    *,
    max_tries: int = 3,
    join: bool = True,
    ttl: float = 10.0,
    data: str = '"d"',
    now: float = 100.0,
) -> Assigned:
    """Offer a piece of work, and claim it."""
    if join:
        ask.join(now=99.0, ttl=1000.0)
    ask.offer("job:1", now=99.0, data=data, max_tries=max_tries)
    return ask.claim_one(now=now, ttl=ttl)


def busy_day(make_store: MakeStore, level: HistoryLevel) -> Asker:
    """Let work go through all that can become of it."""
    ask = Asker(make_store(history=level))
    ask.join(now=99.0, ttl=1000.0)
    ask.join("e-2", now=99.0, ttl=1000.0)
    ask.offer("job:1", now=99.0)
    ask.finish(ask.claim_one(now=100.0), "failed", now=101.0, text="no space left", retry=0.0)
    ask.finish(ask.begin("job:1", "a-1", now=102.0), "returned", now=103.0)
    ask.claim_one(number=2, now=104.0)
    ask.claim_one(number=3, now=114.0)
    ask.leave(now=115.0)
    ask.finish(ask.claim_one("e-2", 1, now=116.0), now=117.0, text='"done"')
    return ask


class AbandonedWork:
    """Failover: with a higher token, not before the lease has ended, and not more often than it may."""

    def test_work_of_the_dead_goes_to_the_living_with_a_higher_token(self, ask: Asker) -> None:
        """P1, R14. And whoever was paused is refused."""
        first = begin(ask)
        ask.join("e-2", now=100.0)
        assert ask.claim("e-2", 1, now=109.999999) == Claimed((), 0.000001)
        second = ask.claim_one("e-2", 2, now=110.0)
        assert (second.token > first.token, second.tries, second.data) == (True, 2, '"d"')
        assert ask.work("job:1", now=110.0).instance == "e-2"
        assert ask.renew(first.attempt, first.token, now=111.0, key="job:1").why == "taken over"
        assert ask.finish(first, now=111.0) == NotHeld("taken over")
        assert ask.work("job:1", now=111.0).state == "assigned"

    def test_death_alone_abandons_nothing(self, ask: Asker) -> None:
        """The lease is the truth: as long as it lives nobody else may begin."""
        ask.join(now=99.0, ttl=5.0)
        first = begin(ask, join=False, ttl=60.0)
        ask.join("e-2", now=100.0)
        assert ask.beat("e-2", now=105.0).living == 1
        assert ask.claim("e-2", 1, now=105.0).works == ()
        assert ask.renew(first.attempt, first.token, now=106.0, key="job:1", ttl=70.0).outcome == "renewed"

    def test_until_somebody_looks_it_stays_as_it_is(self, ask: Asker) -> None:
        first = begin(ask)
        work = WorkView("job:1", "assigned", '"d"', "", 1, 3, "e-1", first.token, 99.0, 100.0, 110.0)
        assert ask.work("job:1", now=120.0) == work
        ask.sweep(now=120.0)
        assert ask.works(now=120.0).works == (work,)
        assert [count.assigned for count in ask.counts(now=120.0)] == [1]

    def test_what_was_renewed_is_left_alone_until_its_end(self, ask: Asker) -> None:
        first = begin(ask)
        ask.renew(first.attempt, first.token, now=109.0, key="job:1")
        ask.join("e-2", now=100.0)
        assert ask.claim("e-2", 1, now=110.0) == Claimed((), 9.0)
        work = ask.work("job:1", now=110.0)
        assert (work.state, work.due_at, work.instance, work.tries) == ("assigned", 119.0, "e-1", 1)

    def test_it_is_due_from_when_its_lease_should_have_ended(self, ask: Asker) -> None:
        """So it comes before what was offered since."""
        begin(ask, data='"old"')
        ask.offer("job:0", now=115.0)
        ask.join("e-2", now=100.0)
        claimed = ask.claim("e-2", 1, now=120.0, ttl=5.0)
        assert [work.key for work in claimed.works] == ["job:1", "job:0"]

    def test_it_is_spread_like_all_that_is_fresh(self, ask: Asker) -> None:
        """Not herded: from the end of its lease the fuller leave it to others."""
        ask.join(now=99.0)
        ask.offer("job:1", "job:2", now=99.0)
        ask.claim(now=100.0)
        ask.join("e-2", now=100.0, capacity=2)
        claimed = ask.claim("e-2", 1, now=110.0, spread=1.0)
        assert ([work.key for work in claimed.works], claimed.again_in) == (["job:1"], 0.5)

    def test_it_goes_to_the_head_of_the_line(self, ask: Asker) -> None:
        """What was begun does not wait behind all that nobody has begun yet."""
        begin(ask)
        ask.offer("job:0", "job:2", now=101.0)
        ask.join("e-2", now=101.0)
        claimed = ask.claim("e-2", 1, now=115.0)
        assert [work.key for work in claimed.works] == ["job:1", "job:0", "job:2"]

    def test_the_store_has_the_time_to_take_over(self, ask: Asker) -> None:
        """Of what was given long ago, by the store's own clock: to the living, who are called for it."""
        begin(ask)
        ask.join("e-2", now=None)
        claimed = ask.claim("e-2", 1, now=None, ttl=60.0)
        assert [(work.key, work.tries) for work in claimed.works] == [("job:1", 2)]
        ask.beat("e-2", now=None)
        assert [event.kind for event in ask.history(key="instance:e-1")] == ["joined", "died"]
        assert ask.claim("e-2", 2, now=None).works == ()
        ask.signals()
        ask.offer("job:2", now=None)
        assert ask.signals() == [("work", "e-2")]

    def test_and_so_does_what_is_returned(self, ask: Asker) -> None:
        given = begin(ask)
        ask.offer("job:0", "job:2", now=101.0)
        ask.finish(given, now=102.0, ending="returned")
        assert ask.work("job:1", now=102.0).due_at == 100.999999
        ask.join("e-2", now=102.0)
        assert [work.key for work in ask.claim("e-2", 1, now=102.0).works] == ["job:1", "job:0", "job:2"]

    def test_it_has_failed_when_it_was_tried_often_enough(self, ask: Asker) -> None:
        first = begin(ask, max_tries=1)
        ask.join("e-2", now=100.0)
        assert ask.claim("e-2", 1, now=115.0) == Claimed((), None)
        assert ask.work("job:1", now=115.0) == WorkView(
            "job:1", "failed", '"d"', abandoned_for_good(1), 1, 1, "e-1", first.token, 99.0, 100.0, 115.0
        )

    def test_each_abandonment_is_a_try(self, ask: Asker) -> None:
        ask.join(now=99.0, ttl=1000.0)
        ask.offer("job:1", now=99.0, max_tries=3)
        for number, now in enumerate((100.0, 110.0, 120.0), start=1):
            assert ask.claim_one(number=number, now=now).tries == number
        assert ask.claim(number=4, now=130.0).works == ()
        work = ask.work("job:1", now=130.0)
        assert (work.state, work.text) == ("failed", abandoned_for_good(3))

    def test_it_is_noted(self, make_store: MakeStore) -> None:
        """Once, under the token that was lost; the expiry of the lease too, as of every lease."""
        ask = Asker(make_store(history="notable"))
        first = begin(ask)
        ask.join("e-2", now=100.0)
        ask.claim_one("e-2", 1, now=112.0)
        expired, abandoned = ask.history(key="job:1")
        assert expired == Event("job:1", 1, "expired", 112.0, first.token, "e-1", id=expired.id)
        assert abandoned == Event("job:1", 2, "abandoned", 112.0, first.token, "e-1", id=abandoned.id)

    def test_everything_of_work_is_kept_at_the_level_all(self, make_store: MakeStore) -> None:
        ask = busy_day(make_store, "all")
        assert [(e.kind, e.owner, e.reason) for e in ask.history(key="job:1")] == [
            ("assigned", "e-1", None),
            ("failed", "e-1", "no space left"),
            ("assigned", "a-1", None),
            ("returned", "a-1", None),
            ("assigned", "e-1", None),
            ("expired", "e-1", None),
            ("abandoned", "e-1", None),
            ("assigned", "e-1", None),
            ("returned", "e-1", None),
            ("assigned", "e-2", None),
            ("completed", "e-2", None),
        ]
        numbers = [event.number for event in ask.history(key="job:1")]
        assert numbers == list(range(1, 12))

    def test_only_the_notable_of_work_is_kept_at_the_level_notable(self, make_store: MakeStore) -> None:
        ask = busy_day(make_store, "notable")
        kinds = [event.kind for event in ask.history(key="job:1")]
        assert kinds == ["failed", "expired", "abandoned", "completed"]

    def test_nothing_is_kept_at_the_level_none(self, make_store: MakeStore) -> None:
        ask = busy_day(make_store, "none")
        assert ask.watch().events == ()
        assert ask.work("job:1", now=200.0).state == "completed"

    def test_events_of_work_have_its_tokens(self, make_store: MakeStore) -> None:
        ask = busy_day(make_store, "all")
        tokens = [event.token for event in ask.history(key="job:1")]
        assert tokens == sorted(tokens)
        assert len(set(tokens)) == 5
        assert tokens[-1] == ask.work("job:1", now=200.0).token

    def test_who_finishes_too_late_offers_it_at_once(self, ask: Asker) -> None:
        """It knows that it is lost, and nobody else needs to find out."""
        first = begin(ask)
        assert ask.finish(first, now=120.0, text='"late"', data='"late"') == NotHeld("expired")
        assert ask.work("job:1", now=120.0) == WorkView(
            "job:1", "offered", '"d"', "", 1, 3, "e-1", first.token, 99.0, 100.0, 120.0
        )

    def test_who_finishes_too_late_may_have_tried_often_enough(self, ask: Asker) -> None:
        first = begin(ask, max_tries=1)
        assert ask.finish(first, "returned", now=120.0) == NotHeld("expired")
        work = ask.work("job:1", now=120.0)
        assert (work.state, work.text, work.due_at) == ("failed", abandoned_for_good(1), 120.0)

    def test_who_finishes_what_was_swept_away_offers_it_at_once(self, ask: Asker) -> None:
        """Nothing is left of the lock but the floor of its token."""
        first = begin(ask)
        ask.sweep(now=110.0)
        ask.sweep(now=180.0, idle=0.0)
        assert ask.inspect(now=180.0, key="job:1") is None
        assert isinstance(ask.finish(first, now=180.0), NotHeld)
        work = ask.work("job:1", now=180.0)
        assert (work.state, work.due_at) == ("offered", 180.0)
        assert ask.claim_one(number=2, now=180.0).token > first.token

    def test_who_claims_what_was_swept_away_finds_it_abandoned(self, ask: Asker) -> None:
        first = begin(ask)
        ask.sweep(now=110.0)
        ask.sweep(now=180.0, idle=0.0)
        second = ask.claim_one(number=2, now=180.0)
        assert (second.token > first.token, second.tries) == (True, 2)
        assert [event.kind for event in ask.history(key="job:1")] == ["expired", "abandoned"]
        assert [event.number for event in ask.history(key="job:1")] == [1, 2]

    def test_tokens_grow_although_the_lock_was_swept_away_and_time_went_back(self, ask: Asker) -> None:
        """P1: what was abandoned has left a row that has had no token yet; the floor counts for it."""
        first = begin(ask, now=1000.0)
        ask.sweep(now=1010.0)
        ask.sweep(now=1080.0, idle=0.0)
        assert isinstance(ask.finish(first, now=150.0), NotHeld)
        assert ask.claim_one(number=2, now=150.0).token > first.token

    def test_to_assign_it_abandons_it_first(self, ask: Asker) -> None:
        first = begin(ask)
        second = ask.begin("job:1", "b-1", now=110.0)
        assert (second.tries, second.token > first.token) == (2, True)
        assert [event.kind for event in ask.history(key="job:1")] == ["expired", "abandoned"]

    def test_to_assign_it_finds_that_it_has_failed(self, ask: Asker) -> None:
        begin(ask, max_tries=1)
        answer = ask.assign("job:1", "b-1", now=110.0)
        assert answer == Ended(ask.work("job:1", now=110.0))
        assert ask.work("job:1", now=110.0).state == "failed"
        assert ask.begin("job:1", "b-1", now=110.0, again=True).tries == 1

    def test_to_forget_it_abandons_it_first(self, ask: Asker) -> None:
        begin(ask)
        assert isinstance(ask.forget("job:1", now=109.999999), Busy)
        answer = ask.forget("job:1", now=110.0)
        assert isinstance(answer, Ended)
        assert (answer.work.state, answer.work.tries) == ("offered", 1)
        assert ask.find_work("job:1", now=110.0) is None
        kinds = [event.kind for event in ask.history(key="job:1")]
        assert kinds == ["expired", "abandoned", "forgotten"]

    # The head of the line

    def test_abandoned_work_goes_to_the_head_of_the_line(self, ask: Asker) -> None:
        """It does not start to wait anew: a microsecond before the first that is offered."""
        begin(ask)
        ask.offer("job:0", now=105.0)
        ask.offer("job:2", now=106.0)
        ask.offer("other:1", now=50.0)
        ask.join("e-2", now=100.0)
        claimed = ask.claim("e-2", 1, now=110.0)
        assert [work.key for work in claimed.works] == ["job:1", "job:0", "job:2"]

    def test_returned_work_goes_to_the_head_of_the_line(self, ask: Asker) -> None:
        given = begin(ask)
        ask.offer("job:0", now=100.0, at=70.0)
        ask.offer("job:2", now=100.0, at=60.0)
        ask.offer("other:1", now=100.0, at=50.0)
        ask.finish(given, "returned", now=105.0)
        assert ask.work("job:1", now=105.0).due_at == 59.999999
        claimed = ask.claim(number=2, now=105.0)
        assert [work.key for work in claimed.works] == ["job:1", "job:2", "job:0"]

    def test_if_no_other_has_waited_longer_it_is_due_now(self, ask: Asker) -> None:
        given = begin(ask)
        ask.offer("job:2", now=105.0)
        ask.finish(given, "returned", now=105.0)
        assert ask.work("job:1", now=105.0).due_at == 105.0

    def test_if_all_others_are_for_later_it_is_due_now(self, ask: Asker) -> None:
        given = begin(ask)
        ask.offer("job:2", now=100.0, delay=50.0)
        ask.finish(given, "returned", now=105.0)
        assert ask.work("job:1", now=105.0).due_at == 105.0

    def test_what_is_returned_for_an_instant_waits_for_it(self, ask: Asker) -> None:
        given = begin(ask)
        ask.offer("job:2", now=100.0, at=60.0)
        ask.finish(given, "returned", now=105.0, at=106.0)
        assert ask.work("job:1", now=105.0).due_at == 106.0

    def test_what_has_failed_waits_as_long_as_it_was_said(self, ask: Asker) -> None:
        given = begin(ask)
        ask.offer("job:2", now=100.0, at=60.0)
        ask.finish(given, "failed", now=105.0, retry=0.0)
        assert ask.work("job:1", now=105.0).due_at == 105.0

    def test_who_leaves_returns_all_to_the_head_of_the_line(self, ask: Asker) -> None:
        """In the order of the keys, each before the one returned just before."""
        ask.join(now=99.0)
        ask.offer("job:1", "job:2", now=99.0)
        ask.claim(now=100.0)
        ask.offer("job:3", now=100.0)
        ask.leave(now=105.0)
        dues = {work.key: work.due_at for work in ask.works(now=105.0).works}
        assert dues == {"job:1": 99.999999, "job:2": 99.999998, "job:3": 100.0}

    def test_who_finishes_too_late_has_it_put_at_the_head_of_the_line(self, ask: Asker) -> None:
        given = begin(ask)
        ask.offer("job:2", now=103.0)
        ask.finish(given, now=120.0)
        assert ask.work("job:1", now=120.0).due_at == 102.999999

    # Leaving

    def test_who_leaves_gives_back_what_it_has_at_once(self, ask: Asker) -> None:
        """Without waiting for any lease to end, and it was not tried."""
        ask.join(now=99.0)
        ask.offer("job:1", "job:2", now=99.0, max_tries=1)
        works = (*ask.claim(now=100.0).works, ask.begin("own:1", "a-1", now=100.0, id="e-1"))
        other = ask.begin("other:1", "b-1", now=100.0)
        assert ask.leave(now=102.0) == Beat("left", 0.0, 0, 102.0)
        for given in works:
            work = ask.work(given.key, now=102.0)
            assert (work.state, work.tries, work.instance) == ("offered", 0, "e-1")
            assert 101.999 < work.due_at <= 102.0
            assert ask.look(now=102.0, key=given.key).state == "free"
            assert ask.finish(given, now=103.0) == NotHeld("already")
            assert ask.renew(given.attempt, given.token, now=103.0, key=given.key).why == "already"
        assert ask.renew("b-1", other.token, now=103.0, key="other:1").outcome == "renewed"
        assert ask.instance(now=103.0).assigned == 0

    def test_who_leaves_hands_its_locks_over(self, ask: Asker) -> None:
        begin(ask)
        ask.queue("b-1", now=101.0, key="job:1")
        ask.leave(now=102.0)
        assert ask.signals() == [("granted", "b-1")]
        assert ask.work("job:1", now=102.0).state == "offered"

    def test_what_was_lost_before_leaving_is_abandoned(self, ask: Asker) -> None:
        """It was tried."""
        ask.join(now=99.0, ttl=1000.0)
        ask.offer("job:1", now=99.0, max_tries=1)
        ask.offer("job:2", now=99.0, max_tries=2)
        ask.claim(now=100.0)
        ask.leave(now=110.0)
        first, second = ask.works(now=110.0).works
        assert (first.state, first.text, first.due_at) == ("failed", abandoned_for_good(1), 110.0)
        assert (second.state, second.tries, second.due_at) == ("offered", 1, 110.0)

    def test_leaving_twice_gives_back_once(self, ask: Asker) -> None:
        """P6: also if somebody else has it by then."""
        begin(ask)
        ask.join("e-2", now=99.0)
        ask.leave(now=101.0)
        second = ask.claim_one("e-2", 1, now=102.0)
        ask.leave(now=103.0)
        assert ask.renew(second.attempt, second.token, now=103.0, key="job:1").outcome == "renewed"
        assert ask.work("job:1", now=103.0).instance == "e-2"

    def test_the_dead_give_back_what_they_have_when_they_leave(self, ask: Asker) -> None:
        """Better now than when the lease ends."""
        ask.join(now=99.0, ttl=5.0)
        begin(ask, join=False, ttl=60.0)
        assert ask.leave(now=110.0) == Beat("dead", 0.0, 0, 110.0)
        work = ask.work("job:1", now=110.0)
        assert (work.state, work.tries, work.due_at) == ("offered", 0, 110.0)
        assert ask.look(now=110.0, key="job:1").state == "free"

    def test_leaving_is_noted_where_it_matters(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(history="all"))
        first = begin(ask)
        ask.leave(now=101.0)
        *_, returned = ask.history(key="job:1")
        assert (returned.kind, returned.at, returned.token, returned.owner) == (
            "returned",
            101.0,
            first.token,
            "e-1",
        )
