"""Finishing work: completed, failed or returned, by who has it and nobody else; and its lock is released."""

from __future__ import annotations

import pytest

from holdfast.core.cluster import Assigned, Beat, Ended, Ending, Finished, WorkView
from holdfast.core.data import replace
from holdfast.core.requests import NotHeld
from holdfast.testing.conformance.asker import Asker

ENDINGS: tuple[Ending, ...] = ("completed", "failed", "returned")
HOUR = 3600.0


def begin(ask: Asker, *, max_tries: int = 3, join: bool = True) -> Assigned:
    """Offer a piece of work, and claim it."""
    if join:
        ask.join(now=99.0, ttl=1000.0)
    ask.offer("job:1", now=99.0, data='"d"', max_tries=max_tries)
    return ask.claim_one(now=100.0)


class FinishedWork:
    """The rows of the table, what they leave behind, and whose word counts."""

    def test_completed(self, ask: Asker) -> None:
        given = begin(ask)
        assert ask.finish(given, now=105.0, text='{"rows": 7}') == Finished("completed")
        work = ask.work("job:1", now=105.0)
        assert work == WorkView(
            "job:1", "completed", '"d"', '{"rows": 7}', 1, 3, "e-1", given.token, 99.0, 100.0, 105.0
        )
        assert work.result == {"rows": 7}

    def test_completed_work_that_recurs_is_offered_as_new(self, ask: Asker) -> None:
        given = begin(ask)
        assert ask.finish(given, now=105.0, text='"ok"', at=200.0) == Finished("offered")
        assert ask.work("job:1", now=105.0) == WorkView(
            "job:1", "offered", '"d"', '"ok"', 0, 3, "e-1", given.token, 99.0, 100.0, 200.0
        )
        assert ask.claim(number=2, now=199.999999).works == ()
        assert ask.claim_one(number=3, now=200.0).tries == 1

    def test_failed_with_a_retry_it_is_offered_for_later(self, ask: Asker) -> None:
        given = begin(ask)
        assert ask.finish(given, "failed", now=105.0, text="no space left", retry=30.0) == Finished("offered")
        assert ask.work("job:1", now=105.0) == WorkView(
            "job:1", "offered", '"d"', "no space left", 1, 3, "e-1", given.token, 99.0, 100.0, 135.0
        )
        assert ask.claim(number=2, now=134.999999).works == ()
        assert ask.claim_one(number=3, now=135.0).tries == 2

    def test_failed_with_a_retry_at_an_instant(self, ask: Asker) -> None:
        given = begin(ask)
        ask.finish(given, "failed", now=105.0, retry=30.0, at=150.5)
        assert ask.work("job:1", now=105.0).due_at == 150.5

    def test_failed_for_good(self, ask: Asker) -> None:
        given = begin(ask)
        assert ask.finish(given, "failed", now=105.0, text="no space left") == Finished("failed")
        assert ask.work("job:1", now=105.0) == WorkView(
            "job:1", "failed", '"d"', "no space left", 1, 3, "e-1", given.token, 99.0, 100.0, 105.0
        )
        assert ask.claim(number=2, now=1000.0 - 900.0).works == ()

    def test_an_instant_without_a_retry_is_for_good_too(self, ask: Asker) -> None:
        given = begin(ask)
        assert ask.finish(given, "failed", now=105.0, at=150.0) == Finished("failed")
        assert ask.work("job:1", now=105.0).due_at == 105.0

    def test_it_fails_for_good_when_it_was_tried_often_enough(self, ask: Asker) -> None:
        begin(ask, max_tries=2)
        given = ask.claim(now=100.0).works[0]
        assert ask.finish(given, "failed", now=101.0, retry=0.0) == Finished("offered")
        given = ask.claim_one(number=2, now=101.0)
        assert given.tries == 2
        assert ask.finish(given, "failed", now=102.0, text="again", retry=0.0) == Finished("failed")
        work = ask.work("job:1", now=102.0)
        assert (work.state, work.text, work.tries, work.due_at) == ("failed", "again", 2, 102.0)

    def test_without_a_limit_it_may_be_tried_for_ever(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.offer("job:1", now=100.0)
        for number in range(1, 8):
            given = ask.claim_one(number=number, now=100.0)
            assert ask.finish(given, "failed", now=100.0, retry=0.0) == Finished("offered")
        assert ask.work("job:1", now=100.0).tries == 7

    def test_returned_it_was_not_tried(self, ask: Asker) -> None:
        given = begin(ask, max_tries=1)
        assert ask.finish(given, "returned", now=105.0, text="ignored") == Finished("offered")
        assert ask.work("job:1", now=105.0) == WorkView(
            "job:1", "offered", '"d"', "", 0, 1, "e-1", given.token, 99.0, 100.0, 105.0
        )
        assert ask.claim_one(number=2, now=105.0).tries == 1

    def test_returned_for_later(self, ask: Asker) -> None:
        given = begin(ask)
        ask.finish(given, "returned", now=105.0, at=500.0)
        assert ask.work("job:1", now=105.0).due_at == 500.0

    def test_what_went_wrong_last_is_kept_until_something_else_is_said(self, ask: Asker) -> None:
        given = begin(ask)
        ask.finish(given, "failed", now=101.0, text="first", retry=0.0)
        second = ask.claim_one(number=2, now=101.0)
        assert ask.work("job:1", now=101.0).text == "first"
        ask.finish(second, "returned", now=102.0)
        assert ask.work("job:1", now=102.0).text == "first"
        ask.finish(ask.claim_one(number=3, now=102.0), now=103.0, text="")
        assert ask.work("job:1", now=103.0).text == ""

    @pytest.mark.parametrize("ending", ENDINGS)
    def test_data_can_be_changed_with_it(self, ask: Asker, ending: Ending) -> None:
        """How far it came, for who does it next."""
        given = begin(ask)
        ask.finish(given, ending, now=105.0, data='{"page": 7}', retry=0.0)
        assert ask.work("job:1", now=105.0).data == '{"page": 7}'

    @pytest.mark.parametrize("ending", ENDINGS)
    def test_its_lock_is_released(self, ask: Asker, ending: Ending) -> None:
        given = begin(ask)
        ask.finish(given, ending, now=105.0)
        view = ask.look(now=105.0, key="job:1")
        assert (view.state, view.token, view.holder, view.holds) == ("free", given.token, None, 0)
        assert ask.renew(given.attempt, given.token, now=106.0, key="job:1").why == "already"
        assert ask.take("b-1", now=106.0, key="job:1").token > given.token
        assert ask.instance(now=106.0).assigned == 0

    @pytest.mark.parametrize("ending", ENDINGS)
    def test_asked_twice_it_is_done_once(self, ask: Asker, ending: Ending) -> None:
        """P6."""
        given = begin(ask, max_tries=0)
        ask.finish(given, ending, now=105.0, retry=5.0)
        before = ask.work("job:1", now=106.0)
        assert ask.finish(given, ending, now=106.0, retry=5.0) == NotHeld("already")
        assert ask.finish(given, "completed", now=107.0, text='"late"', data="9") == NotHeld("already")
        assert ask.work("job:1", now=107.0) == before

    @pytest.mark.parametrize("retire", [True, False])
    def test_a_late_copy_does_not_end_the_next_assignment(self, ask: Asker, retire: bool) -> None:
        """P5, P6: the work was offered again, and another has it."""
        ask.join("e-2", now=99.0)
        given = begin(ask)
        ask.finish(given, "failed", now=101.0, retry=0.0, retire=retire)
        ask.claim_one("e-2", 1, now=102.0)
        before = ask.work("job:1", now=103.0)
        assert ask.finish(given, "failed", now=103.0, retry=0.0, retire=retire) == NotHeld("already")
        assert ask.work("job:1", now=103.0) == before
        assert ask.look(now=103.0, key="job:1").state == "held"

    def test_a_retired_attempt_is_remembered(self, ask: Asker) -> None:
        given = begin(ask)
        ask.finish(given, "returned", now=101.0, retire=True)
        ask.release("b-1", ask.take("b-1", now=102.0, key="job:1").token, now=102.0, key="job:1")
        assert ask.acquire(given.attempt, now=103.0, key="job:1") == NotHeld("already")

    @pytest.mark.parametrize("ending", ENDINGS)
    def test_the_wrong_token_or_attempt_ends_nothing(self, ask: Asker, ending: Ending) -> None:
        """P5."""
        given = begin(ask)
        before = ask.work("job:1", now=101.0)
        for wrong in (
            replace(given, token=given.token + 1),
            replace(given, token=given.token - 1),
            replace(given, token=0),
            replace(given, attempt="b-1"),
            replace(given, attempt="b-1", token=given.token + 1),
            replace(given, key="job:2"),
            replace(given, key="job:2", attempt="b-1"),
        ):
            assert isinstance(ask.finish(wrong, ending, now=101.0, text='"wrong"', data="9"), NotHeld)
            assert ask.work("job:1", now=101.0) == before
        assert ask.renew(given.attempt, given.token, now=102.0, key="job:1").outcome == "renewed"
        assert ask.find_work("job:2", now=102.0) is None

    def test_it_must_be_in_time(self, ask: Asker) -> None:
        """In the last microsecond it is; at the end of the lease it is too late, whoever has it then."""
        given = begin(ask)
        assert ask.finish(given, now=109.999999) == Finished("completed")
        late = ask.begin("job:2", "a-1", now=100.0)
        assert ask.finish(late, now=110.0, text='"late"') == NotHeld("expired")
        work = ask.work("job:2", now=110.0)
        assert (work.state, work.text, work.tries, work.due_at) == ("offered", "", 1, 110.0)

    def test_work_that_is_not_known_is_not_finished(self, ask: Asker) -> None:
        never = Assigned("job:1", "a-1", 7, "null", 1, 10.0)
        assert ask.finish(never, now=100.0) == NotHeld("unknown")
        assert ask.find_work("job:1", now=100.0) is None
        assert ask.inspect(now=100.0, key="job:1") is None

    def test_who_drains_finishes_what_it_has(self, ask: Asker) -> None:
        given = begin(ask)
        ask.beat(now=101.0, drain=True)
        assert ask.finish(given, now=102.0) == Finished("completed")

    def test_the_dead_can_finish_as_long_as_the_lease_lives(self, ask: Asker) -> None:
        """The lease is the truth: nobody else has begun it."""
        ask.join(now=99.0, ttl=5.0)
        given = begin(ask, join=False)
        assert ask.beat(now=105.0) == Beat("dead", 0.0, 0, 105.0)
        assert ask.finish(given, now=106.0) == Finished("completed")

    @pytest.mark.parametrize("ending", ENDINGS)
    def test_each_ending_can_be_asked_about(self, ask: Asker, ending: Ending) -> None:
        """The first that looks for ended work finds it; what is offered again has not ended."""
        given = begin(ask)
        ask.finish(given, ending, now=101.0)
        answer = ask.assign("job:1", "b-1", now=102.0)
        assert isinstance(answer, Assigned if ending == "returned" else Ended)

    # What is left behind

    def test_ended_work_is_forgotten_with_its_history(self, ask: Asker) -> None:
        """As long as it is known, offering it again changes nothing."""
        for key, ending in (("job:1", "completed"), ("job:2", "failed"), ("job:3", "returned")):
            ask.finish(ask.begin(key, "a-1", now=100.0), ending, now=101.0)  # type: ignore[arg-type]
        ask.begin("job:4", "a-1", now=100.0)
        ask.sweep(now=101.0 + HOUR - 0.000001, keep_history=HOUR)
        assert ask.offer("job:1", "job:2", now=102.0).new == (False, False)
        ask.sweep(now=101.0 + HOUR, keep_history=HOUR)
        assert [work.key for work in ask.works(now=102.0).works] == ["job:3", "job:4"]
        assert ask.offer("job:1", now=102.0).new == (True,)

    def test_so_much_is_forgotten_at_a_time(self, ask: Asker) -> None:
        """R4: and a sweep goes on until there is none."""
        for number in range(5):
            ask.finish(ask.begin(f"job:{number}", "a-1", now=100.0), now=100.0)
        left: list[int] = []
        after: str | None = ""
        while after is not None and len(left) < 10:
            after = ask.sweep(now=200.0, limit=2, after=after, keep_history=50.0).after
            left.append(len(ask.works(now=200.0).works))
        assert left[:3] == [3, 1, 0]

    def test_the_store_has_the_time_of_an_ending(self, ask: Asker) -> None:
        given = ask.begin("job:1", "a-1", now=None, ttl=60.0)
        assert ask.finish(given, "failed", now=None, retry=1000.0) == Finished("offered")
        work = ask.work("job:1", now=None)
        assert 999.0 < work.due_at - given.at < 1060.0
