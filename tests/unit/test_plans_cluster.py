"""What an instance asks, driven by hand."""

import pytest

from holdfast.core import cluster_plans as plans
from holdfast.core.backoff import Backoff
from holdfast.core.cluster import (
    Assign,
    Assigned,
    Beat,
    Claimed,
    Ended,
    Finish,
    Finished,
    Full,
    InspectWork,
    Join,
    Leave,
    NotDue,
    WorkView,
)
from holdfast.core.data import replace
from holdfast.core.demand import Demand
from holdfast.core.membership import Membership
from holdfast.core.plans import MOST_LATE, Abandoned, Grant, Stopped, Wait, unless
from holdfast.core.refusals import DEAD, DRAINING, LEFT
from holdfast.core.requests import Busy, Client, Holder, NotHeld, Withdraw
from holdfast.core.settings import Settings
from holdfast.errors import (
    AtCapacity,
    InstanceLost,
    LockTimeout,
    OutcomeUnknown,
    SchemaMismatch,
    StoreUnavailable,
    WorkEnded,
)

SETTINGS = Settings(margin=1.0, release_timeout=5.0, backoff=Backoff(first=0.1, most=2.0))
ME = Client("address", "host", 7)
JOIN = Join("engine-1", "engine", ME, 8, 90.0)
ASSIGN = Assign("workflow:1", "a-1", "engine-1", 30.0, ME, id="engine-1")
MINE = Assigned("workflow:1", "a-1", 8, '{"n":1}', 1, 30.0)
FINISH = Finish("workflow:1", "a-1", 8, "completed", "null")
LOOK = InspectWork("workflow:1")
GIVE_BACK = Finish("workflow:1", "a-1", 8, "returned", retire=True)
HOLDER = Holder("engine-2", "host", 8, 7, 1.0)
WORK = WorkView("workflow:1", "failed", "null", "boom", 1, 1, "engine-2", 7, 1.0, 2.0, 3.0)


class Time:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def how(time):
    return {"settings": SETTINGS, "clock": time, "roll": lambda: 0.0}


def result(plan, answer):
    with pytest.raises(StopIteration) as stopped:
        plan.send(answer)
    return stopped.value.value


def ends(plan, answer, error):
    """Check that a plan ends with an error when it is sent an answer, or thrown one."""
    with pytest.raises(type(error) if isinstance(error, Exception) else error) as raised:
        plan.throw(answer) if isinstance(answer, Exception) else plan.send(answer)
    return raised.value


# Joining.


def test_an_answer_is_trusted_from_just_before_it_was_asked_for(time, how):
    plan = plans.join(JOIN, **how)
    assert next(plan) == JOIN
    time.now = 1.0
    assert plan.throw(StoreUnavailable("down")) == Wait("", "", 1.05)
    time.now = 2.0
    assert plan.send(None) == JOIN
    time.now = 3.0
    assert result(plan, Beat("alive", 90.0, 1)) == plans.Answer(Beat("alive", 90.0, 1), 2.0)


def test_a_store_that_stays_away_cannot_be_joined(time, how):
    plan = plans.join(JOIN, **how)
    next(plan)
    time.now = 5.0
    ends(plan, StoreUnavailable("down"), StoreUnavailable)


def test_a_join_that_may_have_been_heard_is_undone(time, how):
    plan = plans.join(JOIN, **how)
    next(plan)
    plan.throw(OutcomeUnknown("cut"))
    plan.send(None)
    time.now = 5.0
    assert plan.throw(StoreUnavailable("down")) == Leave("engine-1")
    ends(plan, Beat("left"), OutcomeUnknown)


def test_an_interrupted_join_is_undone_even_if_that_is_interrupted(how):
    plan = plans.join(JOIN, **how)
    next(plan)
    assert plan.throw(Abandoned()) == Leave("engine-1")
    assert plan.throw(Abandoned()) == Leave("engine-1")
    ends(plan, StoreUnavailable("down"), Abandoned)


def test_a_join_that_took_longer_than_its_ttl_has_failed(how):
    plan = plans.join(JOIN, **how)
    next(plan)
    assert ends(plan, Beat("dead"), InstanceLost).reason == DEAD


# Demand.


@pytest.fixture
def demand(how) -> Demand:
    member = Membership("engine-1", ME, ttl=90.0, heartbeat=30.0, settings=SETTINGS, roll=lambda: 0.0)
    return Demand(member, capacity=8, spread=0.25, settings=SETTINGS, roll=lambda: 0.0)


def claim(demand, how, known=(), until=60.0):
    request = demand.next(("workflow",), 8, attempt="a-1", ttl=30.0)
    return request, plans.claim(demand, request, known=known, until=lambda: until, **how)


def test_a_claim_is_asked_again_with_its_number(time, how, demand):
    request, plan = claim(demand, how)
    assert next(plan) == request
    assert plan.throw(OutcomeUnknown("cut")) == Wait("", "", 0.05)
    time.now = 0.05
    assert plan.send(None) == request
    answer = result(plan, Claimed((MINE,), None))
    assert answer == plans.Answer(Claimed((MINE,), None), 0.05, unsure=True)
    assert demand.unsure is request, "until what was claimed is taken care of"


def test_a_claim_that_is_refused_is_over(how, demand):
    _, plan = claim(demand, how)
    next(plan)
    assert result(plan, Beat("draining")).said == Beat("draining")
    assert demand.unsure is None


def test_a_claim_that_fails_is_not_forgotten(time, how, demand):
    request, plan = claim(demand, how, until=1.0)
    next(plan)
    time.now = 1.0
    ends(plan, OutcomeUnknown("cut"), OutcomeUnknown)
    assert demand.unsure is request


def test_an_interrupted_claim_returns_what_it_may_have_got(how, demand):
    request, plan = claim(demand, how, known=["a-1.1"])
    next(plan)
    assert plan.throw(Abandoned()) == request
    got = tuple(replace(MINE, key=f"workflow:{i}", attempt=f"a-1.{i}") for i in range(3))
    assert plan.send(Claimed(got)) == Finish("workflow:0", "a-1.0", 8, "returned", retire=True)
    assert plan.send(Finished("offered")) == Finish("workflow:2", "a-1.2", 8, "returned", retire=True)
    ends(plan, Finished("offered"), Abandoned)
    assert demand.unsure is None


def test_what_an_interrupted_claim_cannot_return_ends_by_itself(how, demand):
    request, plan = claim(demand, how)
    next(plan)
    assert plan.throw(Abandoned()) == request
    assert plan.send(Claimed((MINE,))) == Finish("workflow:1", "a-1", 8, "returned", retire=True)
    ends(plan, StoreUnavailable("down"), Abandoned)
    assert demand.unsure is None


def test_an_interrupted_claim_that_cannot_be_undone_is_left_to_the_next(how, demand):
    request, plan = claim(demand, how)
    next(plan)
    assert plan.throw(Abandoned()) == request
    ends(plan, StoreUnavailable("down"), Abandoned)
    assert demand.unsure is request


def test_an_interrupted_claim_of_who_is_gone_is_over(how, demand):
    request, plan = claim(demand, how)
    next(plan)
    assert plan.throw(Abandoned()) == request
    ends(plan, Beat("dead"), Abandoned)
    assert demand.unsure is None


def test_there_is_nothing_to_undo_without_a_claim(demand):
    assert list(plans.undo_claim(demand, ())) == []


def test_a_lease_that_is_older_than_the_question_is_trusted_for_what_is_left(how, demand):
    request, _ = claim(demand, how)
    task = plans.claimed_task(replace(MINE, expires_in=20.0), request, asked=10.0, settings=SETTINGS)
    assert task.grant == Grant("workflow:1", "a-1", "engine-1", 8, 30.0, 29.0)
    assert (task.data, task.tries) == ('{"n":1}', 1)


# Assigning.


def test_work_is_assigned(time, how):
    plan = plans.assign(ASSIGN, **how)
    assert next(plan) == ASSIGN
    time.now = 1.0
    assert result(plan, MINE) == plans.Task(
        Grant("workflow:1", "a-1", "engine-1", 8, 30.0, 29.0), '{"n":1}', 1
    )


def test_work_that_may_have_been_asked_for_twice_is_retired(how):
    plan = plans.assign(ASSIGN, **how)
    next(plan)
    plan.throw(OutcomeUnknown("cut"))
    plan.send(None)
    assert result(plan, MINE).grant.retire
    plan = plans.assign(ASSIGN, retire=True, **how)
    next(plan)
    assert result(plan, MINE).grant.retire


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (Busy(HOLDER, 3.0), LockTimeout, "'workflow:1' is held by engine-2"),
        (Full(8), AtCapacity, "instance 'engine-1' has 8 assignments"),
        (Ended(WORK), WorkEnded, r"'workflow:1' has failed already \(boom\)"),
        (NotDue(3.0), LockTimeout, "'workflow:1' was not granted"),
        (Beat("dead"), InstanceLost, DEAD),
        (Beat("left"), InstanceLost, LEFT),
        (Beat("draining"), InstanceLost, DRAINING),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str | type) else "",
)
def test_what_cannot_be_assigned_says_why(how, answer, error, says):
    plan = plans.assign(ASSIGN, **how)
    next(plan)
    with pytest.raises(error, match=says):
        plan.send(answer)


def test_where_requests_may_be_repeated_a_refused_attempt_is_withdrawn(how):
    plan = plans.assign(ASSIGN, retire=True, **how)
    next(plan)
    assert plan.send(Full(8)) == LOOK
    assert plan.send(None) == Withdraw("workflow:1", "a-1")
    ends(plan, NotHeld("unknown"), AtCapacity)


def test_an_attempt_that_has_ended_is_followed_by_another(how):
    plan = plans.assign(ASSIGN, **how)
    next(plan)
    assert plan.send(NotHeld("already")) == replace(ASSIGN, attempt="a-1.1")
    assert plan.send(NotHeld("already")) == replace(ASSIGN, attempt="a-1.2")


def test_an_interrupted_assignment_is_returned(how):
    plan = plans.assign(ASSIGN, **how)
    next(plan)
    assert plan.throw(Abandoned()) == LOOK
    assert plan.send(replace(WORK, state="assigned", token=8)) == GIVE_BACK
    ends(plan, Finished("offered"), Abandoned)


def test_work_that_somebody_else_has_stays_with_them(how):
    plan = plans.assign(ASSIGN, **how)
    next(plan)
    assert plan.throw(Abandoned()) == LOOK
    plan.send(replace(WORK, state="assigned", token=7))
    assert plan.send(NotHeld("unknown")) == Withdraw("workflow:1", "a-1")
    ends(plan, NotHeld("unknown"), Abandoned)


def test_an_assignment_without_an_answer_is_returned(time, how):
    plan = plans.assign(ASSIGN, **how)
    next(plan)
    time.now = 5.0
    assert plan.throw(OutcomeUnknown("cut")) == LOOK
    assert plan.throw(StoreUnavailable("down")) == Withdraw("workflow:1", "a-1")
    ends(plan, StoreUnavailable("down"), OutcomeUnknown)


def test_an_assignment_that_was_certainly_not_heard_leaves_nothing(time, how):
    plan = plans.assign(ASSIGN, **how)
    next(plan)
    ends(plan, SchemaMismatch("old"), SchemaMismatch)


def test_a_store_that_is_too_slow_is_given_up(time, how):
    plan = plans.assign(ASSIGN, **how)
    assert next(plan) == ASSIGN
    for _ in range(MOST_LATE - 1):
        time.now += 30.0
        assert plan.send(MINE) == ASSIGN
    time.now += 30.0
    assert plan.send(MINE) == LOOK
    assert plan.send(replace(WORK, state="assigned", token=8)) == GIVE_BACK
    assert "too slowly" in str(ends(plan, Finished("offered"), StoreUnavailable))


# Finishing.


def test_work_is_finished(how):
    plan = plans.finish(FINISH, **how)
    assert next(plan) == FINISH
    assert result(plan, Finished("completed")) == Finished("completed")


def test_a_store_that_fails_is_asked_again(time, how):
    plan = plans.finish(FINISH, **how)
    next(plan)
    assert plan.throw(StoreUnavailable("down")) == Wait("", "", 0.05)
    assert plan.send(None) == FINISH
    assert result(plan, NotHeld("already")) == NotHeld("already"), "it was certainly not us"


@pytest.mark.parametrize(
    ("request_", "state"),
    [
        (FINISH, "completed"),
        (replace(FINISH, at=60.0), "offered"),
        (replace(FINISH, ending="failed"), "failed"),
        (replace(FINISH, ending="failed", retry=1.0), "offered"),
        (replace(FINISH, ending="returned"), "offered"),
    ],
)
def test_a_lost_answer_is_found_again(how, request_, state):
    plan = plans.finish(request_, **how)
    next(plan)
    plan.throw(OutcomeUnknown("cut"))
    assert plan.send(None) == replace(request_, retire=True)
    assert result(plan, NotHeld("already")) == Finished(state)


def test_what_was_lost_meanwhile_is_told(how):
    plan = plans.finish(FINISH, **how)
    next(plan)
    plan.throw(OutcomeUnknown("cut"))
    plan.send(None)
    assert result(plan, NotHeld("expired")) == NotHeld("expired")


def test_what_one_try_may_have_done_no_later_one_takes_back(time, how):
    plan = plans.finish(FINISH, **how)
    next(plan)
    plan.throw(OutcomeUnknown("cut"))
    plan.send(None)
    time.now = 5.0
    ends(plan, StoreUnavailable("down"), OutcomeUnknown)


def test_a_store_that_stays_away_is_given_up(time, how):
    plan = plans.finish(FINISH, **how)
    next(plan)
    time.now = 5.0
    ends(plan, StoreUnavailable("down"), StoreUnavailable)


def test_an_interrupted_end_is_asked_for_all_the_same(how):
    plan = plans.finish(FINISH, **how)
    next(plan)
    assert plan.throw(Abandoned()) == replace(FINISH, retire=True)
    ends(plan, Finished("completed"), Abandoned)


# Stopping something that waits.


def waiting():
    """Ask, wait, and ask again; abandoned, withdraw."""
    try:
        said = yield FINISH
        while said is None:
            try:
                said = yield Wait("workflow:1", "a-1", None)
            except StoreUnavailable:
                said = yield FINISH
    except Abandoned:
        yield Withdraw("workflow:1", "a-1")
        raise
    return said


def test_a_plan_that_is_not_stopped_goes_on():
    plan = unless(lambda: False, waiting())
    assert next(plan) == FINISH
    assert plan.send(None) == Wait("workflow:1", "a-1", None)
    assert plan.throw(StoreUnavailable("down")) == FINISH
    assert result(plan, "done") == "done"


def test_a_plan_is_stopped_when_it_next_wakes_up():
    stopped = []
    plan = unless(lambda: bool(stopped), waiting())
    next(plan)
    stopped.append(True)
    assert plan.send(None) == Wait("workflow:1", "a-1", None), "an answer is taken in first"
    assert plan.send(None) == Withdraw("workflow:1", "a-1")
    ends(plan, None, Stopped)


def test_a_plan_that_was_stopped_before_asks_nothing():
    with pytest.raises(Stopped):
        next(unless(lambda: True, waiting()))


def test_an_interrupted_plan_is_not_a_stopped_one():
    plan = unless(lambda: False, waiting())
    next(plan)
    assert plan.throw(Abandoned()) == Withdraw("workflow:1", "a-1")
    ends(plan, None, Abandoned)
