"""The releasing plan, and plain asking, driven by hand."""

import pytest

from holdfast.core.backoff import Backoff
from holdfast.core.data import replace
from holdfast.core.events import Event
from holdfast.core.family import Outcome
from holdfast.core.plans import (
    WATCH_ANYWAY,
    WATCH_EVERY,
    WATCH_PACE,
    Abandoned,
    Grant,
    Wait,
    ask,
    break_leases,
    next_events,
    release,
)
from holdfast.core.requests import (
    EVENTS,
    MOST_SHOWN,
    Break,
    Broken,
    Downgrade,
    Feed,
    Granted,
    Holder,
    Inspect,
    LockView,
    NotHeld,
    Refused,
    Release,
    Released,
    Watch,
)
from holdfast.core.settings import Settings
from holdfast.errors import OutcomeUnknown, SchemaMismatch, StoreUnavailable

SETTINGS = Settings(release_timeout=5.0, backoff=Backoff(first=0.1, most=2.0))
GRANT = Grant("nightly", "a-1", "worker-7", token=8, ttl=30.0, trusted_until=29.0)
RETIRED = Grant("nightly", "a-1", "worker-7", token=8, ttl=30.0, trusted_until=29.0, retire=True)
RELEASE = Release("nightly", "a-1", 8)
SUCCESS = Outcome(True, "null")
RETIRE = Release("nightly", "a-1", 8, retire=True)


def plan_for(grant: Grant = GRANT, now: float = 0.0):
    return release(grant, settings=SETTINGS, clock=lambda: now, roll=lambda: 0.0)


def result(plan, answer):
    with pytest.raises(StopIteration) as stopped:
        plan.send(answer)
    return stopped.value.value


def test_a_hold_is_given_back():
    plan = plan_for()
    assert next(plan) == RELEASE
    assert result(plan, Released(0, next="worker-1")) == Released(0, next="worker-1")


def test_an_attempt_that_is_to_be_retired_is_retired():
    assert next(plan_for(RETIRED)) == RETIRE


@pytest.mark.parametrize("why", ["expired", "taken over", "broken", "already", "unknown"])
def test_what_was_not_held_any_more_is_said(why):
    plan = plan_for()
    next(plan)
    assert result(plan, NotHeld(why)) == NotHeld(why)


def test_a_release_that_was_certainly_not_applied_is_asked_again():
    plan = plan_for()
    next(plan)
    assert plan.throw(StoreUnavailable()) == Wait("nightly", "a-1", until=0.05)
    assert plan.send(None) == RELEASE
    assert result(plan, NotHeld("expired")) == NotHeld("expired")


def test_a_release_that_may_have_been_applied_is_asked_again_and_retires():
    """P6: a copy of the first may arrive later, and so may a copy of the acquire."""
    plan = plan_for()
    next(plan)
    plan.throw(OutcomeUnknown())
    assert plan.send(None) == RETIRE


@pytest.mark.parametrize("why", ["already", "taken over", "expired", "unknown"])
def test_after_a_lost_answer_not_held_means_that_it_was_released(why):
    plan = plan_for()
    next(plan)
    plan.throw(OutcomeUnknown())
    plan.send(None)
    assert result(plan, NotHeld(why)) == Released()


def test_an_outcome_is_told_for_sure_or_not_at_all():
    plan = release(GRANT, settings=SETTINGS, clock=lambda: 0.0, roll=lambda: 0.0, outcome=SUCCESS)
    told = Release("nightly", "a-1", 8, retire=True, outcome=SUCCESS)
    assert next(plan) == told
    assert result(plan, Released(told=3)) == Released(told=3)


@pytest.mark.parametrize(
    ("why", "answer"),
    [("already", Released()), ("taken over", NotHeld("taken over")), ("expired", NotHeld("expired"))],
)
def test_after_a_lost_answer_an_outcome_counts_only_if_it_was_ours(why, answer):
    plan = release(GRANT, settings=SETTINGS, clock=lambda: 0.0, roll=lambda: 0.0, outcome=SUCCESS)
    next(plan)
    plan.throw(OutcomeUnknown())
    plan.send(None)
    assert result(plan, NotHeld(why)) == answer


def watching(time, until=None, after=5, attempt=""):
    return next_events(
        Watch("pull:", after=after),
        attempt,
        until=until,
        settings=SETTINGS,
        clock=lambda: next(time),
        roll=lambda: 0.0,
    )


def test_who_watches_looks_again_until_there_is_something():
    plan = watching(iter((1.0, 2.0)))
    assert next(plan) == Watch("pull:", after=5)
    assert plan.send(Feed((), 7)) == Wait("", "", until=1.0 + WATCH_EVERY)
    assert plan.send(None) == Watch("pull:", after=7)
    feed = Feed((Event("pull:x", 1, "granted", 1.0, 8, id=9),), 9)
    assert result(plan, feed) == feed


def test_who_watches_goes_through_what_is_not_wanted_without_waiting():
    """A store looks at so many events at once. Behind those there may be more, and they are there already."""
    plan = watching(iter((3.0,)), until=2.0)
    next(plan)
    assert plan.send(Feed((), 1005)) == Watch("pull:", after=1005)
    assert plan.send(Feed((), 2005)) == Watch("pull:", after=2005)
    assert result(plan, Feed((), 2006)) == Feed((), 2006)  # that was the end, and the time is over


def test_who_watches_a_busy_store_does_not_ask_all_the_time():
    plan = watching(iter((1.0,)))
    next(plan)
    assert plan.send(Feed((), 7)) == Wait("", "", until=1.0 + WATCH_EVERY)


def test_who_is_told_of_events_looks_seldom_and_at_once_when_told():
    plan = watching(iter((1.0, 2.0)), attempt="w-1")
    next(plan)
    assert plan.send(Feed((), 7, tells=True)) == Wait("", "w-1", until=1.0 + WATCH_ANYWAY)
    assert plan.send(EVENTS) == Watch("pull:", after=7)


def test_who_is_told_of_many_events_looks_once_for_them():
    """Told just after a look: others are about to write as well."""
    plan = watching(iter((1.0, 1.01)), attempt="w-1")
    next(plan)
    plan.send(Feed((), 7, tells=True))
    assert plan.send(EVENTS) == Wait("", "", until=1.0 + WATCH_PACE)
    assert plan.send(None) == Watch("pull:", after=7)


def test_who_is_not_told_looks_anyway():
    plan = watching(iter((1.0, 5.0)), attempt="w-1")
    next(plan)
    plan.send(Feed((), 7, tells=True))
    assert plan.send(None) == Watch("pull:", after=7)
    assert plan.send(Feed((), 7)) == Wait("", "w-1", until=5.0 + WATCH_EVERY)


def test_who_watches_goes_on_when_the_store_comes_back():
    plan = watching(iter((1.0,)))
    next(plan)
    assert plan.throw(StoreUnavailable()) == Wait("", "", until=1.05)
    assert plan.send(None) == Watch("pull:", after=5)


def test_who_watches_does_so_until_it_is_enough():
    plan = watching(iter((1.0, 1.0, 3.0)), until=1.1)
    next(plan)
    assert plan.send(Feed((), 7)) == Wait("", "", until=1.1)
    plan.send(None)
    assert result(plan, Feed((), 8)) == Feed((), 8)


def test_a_store_that_is_down_at_the_end_is_told():
    plan = watching(iter((1.0,)), until=1.01)
    next(plan)
    with pytest.raises(StoreUnavailable):
        plan.throw(StoreUnavailable())


def test_where_the_feed_ends_is_answered_at_once():
    plan = watching(iter(()), after=None)
    next(plan)
    assert result(plan, Feed((), 7)) == Feed((), 7)


def test_after_a_lost_answer_a_break_is_still_told():
    plan = plan_for()
    next(plan)
    plan.throw(OutcomeUnknown())
    plan.send(None)
    assert result(plan, NotHeld("broken", "olga", "stuck")) == NotHeld("broken", "olga", "stuck")


def test_failures_are_borne_until_it_is_not_worth_it():
    """The lease ends by itself."""
    time = iter((0.0, 1.0, 4.96))
    plan = release(GRANT, settings=SETTINGS, clock=lambda: next(time), roll=lambda: 0.0)
    next(plan)
    assert plan.throw(StoreUnavailable()) == Wait("nightly", "a-1", until=1.05)
    plan.send(None)
    with pytest.raises(StoreUnavailable):
        plan.throw(StoreUnavailable())


def test_other_errors_are_raised_at_once():
    plan = plan_for()
    next(plan)
    with pytest.raises(SchemaMismatch):
        plan.throw(SchemaMismatch("new"))


@pytest.mark.parametrize("moment", ["asking", "backing off"])
def test_whoever_is_interrupted_still_gives_it_back(moment):
    """R21: the request may not have been sent yet, and releasing twice is harmless."""
    plan = plan_for()
    next(plan)
    if moment == "backing off":
        plan.throw(StoreUnavailable())
    assert plan.throw(Abandoned()) == RETIRE
    with pytest.raises(Abandoned) as caught:
        plan.send(NotHeld("already"))
    assert not caught.value.in_vain


def test_whoever_is_interrupted_and_not_the_last_gives_it_back_without_an_outcome():
    plan = release(GRANT, settings=SETTINGS, clock=lambda: 0.0, roll=lambda: 0.0, outcome=SUCCESS)
    next(plan)
    assert plan.throw(Abandoned()) == Release("nightly", "a-1", 8, retire=True, outcome=SUCCESS)
    assert plan.send(Refused("holds")) == RETIRE
    with pytest.raises(Abandoned):
        plan.send(Released(1))


def test_an_interruption_goes_on_even_if_the_last_wish_fails():
    plan = plan_for()
    next(plan)
    plan.throw(Abandoned())
    with pytest.raises(Abandoned) as caught:
        plan.throw(StoreUnavailable())
    assert caught.value.in_vain


def test_a_plan_that_is_merely_closed_asks_for_nothing():
    plan = plan_for()
    next(plan)
    plan.close()
    with pytest.raises(StopIteration):
        next(plan)


def test_a_question_is_asked_again_while_the_store_is_unavailable():
    time = iter((0.0, 1.0, 4.96))
    plan = ask(Inspect("nightly"), settings=SETTINGS, clock=lambda: next(time), roll=lambda: 0.0)
    assert next(plan) == Inspect("nightly")
    assert plan.throw(StoreUnavailable()) == Wait("", "", until=1.05)
    assert plan.send(None) == Inspect("nightly")
    with pytest.raises(StoreUnavailable):
        plan.throw(StoreUnavailable())


def test_the_answer_to_a_question_is_returned():
    plan = ask(Inspect("nightly"), settings=SETTINGS, clock=lambda: 0.0, roll=lambda: 0.0)
    next(plan)
    assert result(plan, None) is None


DOWNGRADE = Downgrade("nightly", "a-1", 8)


def downgrading(*time: float):
    clock = iter(time)
    return ask(DOWNGRADE, settings=SETTINGS, clock=lambda: next(clock), roll=lambda: 0.0, unknown_too=True)


def test_what_may_have_been_done_is_asked_again_only_if_that_is_wanted():
    plan = ask(Inspect("nightly"), settings=SETTINGS, clock=lambda: 0.0, roll=lambda: 0.0)
    next(plan)
    with pytest.raises(OutcomeUnknown):
        plan.throw(OutcomeUnknown())
    plan = downgrading(0.0, 1.0)
    assert next(plan) == DOWNGRADE
    assert plan.throw(OutcomeUnknown()) == Wait("", "", until=1.05)
    assert plan.send(None) == DOWNGRADE
    assert result(plan, Granted(8, 30.0)) == Granted(8, 30.0)


def test_what_may_have_been_done_once_stays_unknown():
    """That the last try was certainly not applied says nothing about the one before."""
    plan = downgrading(0.0, 1.0, 4.96)
    next(plan)
    plan.throw(OutcomeUnknown("the line broke"))
    plan.send(None)
    with pytest.raises(OutcomeUnknown, match="the line broke"):
        plan.throw(StoreUnavailable())


def breaking(token=None):
    request = Break("gpu", "olga", "stuck", token)
    return break_leases(request, settings=SETTINGS, clock=lambda: 0.0, roll=lambda: 0.0)


def holder(token):
    return Holder("worker", "host", 1, token, 1.0)


def view(*tokens, newest, state="held"):
    holders = tuple(map(holder, tokens))
    return LockView("gpu", state, newest, holders[0], 9.0, len(tokens), 0, holders=holders)


def test_a_lease_that_is_named_is_broken_without_a_look():
    plan = breaking(7)
    assert next(plan) == Break("gpu", "olga", "stuck", 7)
    assert result(plan, Broken(holder(7))) == [Broken(holder(7))]
    plan = breaking(7)
    next(plan)
    assert result(plan, NotHeld("taken over")) == []


def test_a_lock_that_is_only_shut_is_broken_open_by_the_token_that_shut_it():
    plan = breaking()
    next(plan)
    gone = Holder("worker", "host", 1, 7, 1.0, gone=True)
    assert plan.send(LockView("gpu", "held", 7, gone, 9.0, 0, 0)) == Break("gpu", "olga", "stuck", 7)
    assert result(plan, Broken(gone)) == [Broken(gone)]


def test_a_result_that_is_kept_is_thrown_away_after_the_leases_that_are_there():
    gone = Holder("worker", "host", 1, 7, 1.0, gone=True)
    plan = breaking()
    next(plan)
    shown = LockView("gpu", "free", 8, None, 0.0, 0, 0, kept=gone, kept_for=9.0)
    assert plan.send(shown) == Break("gpu", "olga", "stuck", 7)
    assert result(plan, Broken(gone)) == [Broken(gone)]
    plan = breaking()
    next(plan)
    assert plan.send(replace(view(8, newest=8), kept=gone)) == Break("gpu", "olga", "stuck", 8)
    assert plan.send(Broken(holder(8))) == Break("gpu", "olga", "stuck", 7)
    assert result(plan, Broken(gone)) == [Broken(holder(8)), Broken(gone)]
    plan = breaking()
    next(plan)
    assert result(plan, view(8, newest=8, state="expired")) == []


def test_all_that_are_shown_are_broken():
    plan = breaking()
    assert next(plan) == Inspect("gpu")
    assert plan.send(view(1, 2, newest=2)) == Break("gpu", "olga", "stuck", 1)
    assert plan.send(Broken(holder(1))) == Break("gpu", "olga", "stuck", 2)
    assert result(plan, NotHeld("taken over")) == [Broken(holder(1))]  # it was released a moment ago


def test_where_not_all_are_shown_all_that_were_there_are_broken_and_none_that_came_later():
    many = range(1, MOST_SHOWN + 1)
    plan = breaking()
    next(plan)
    assert plan.send(view(*many, newest=MOST_SHOWN + 2)) == Break("gpu", "olga", "stuck", 1)
    for token in many[1:]:
        assert plan.send(Broken(holder(token - 1))) == Break("gpu", "olga", "stuck", token)
    assert plan.send(Broken(holder(MOST_SHOWN))) == Inspect("gpu")
    late = MOST_SHOWN + 2
    assert plan.send(view(late, late + 1, newest=late + 1)) == Break("gpu", "olga", "stuck", late)
    assert len(result(plan, Broken(holder(late)))) == MOST_SHOWN + 1


@pytest.mark.parametrize("seen", [None, view(1, newest=1, state="expired")])
def test_where_nobody_is_there_is_nothing_to_break(seen):
    plan = breaking()
    next(plan)
    assert result(plan, seen) == []


def test_a_lock_that_is_forgotten_meanwhile_has_no_leases():
    plan = breaking()
    next(plan)
    plan.send(view(*range(1, MOST_SHOWN + 1), newest=MOST_SHOWN))
    for _ in range(MOST_SHOWN):
        plan.send(NotHeld("taken over"))
    assert result(plan, None) == []
