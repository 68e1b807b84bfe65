"""The acquiring plan, driven by hand: no store, no clock, no mock."""

import pytest

from holdfast.core.backoff import Backoff
from holdfast.core.data import replace
from holdfast.core.family import Failure, Link, Terms
from holdfast.core.plans import TICK, Abandoned, Grant, Handed, Wait, acquire
from holdfast.core.requests import (
    Acquire,
    Busy,
    Client,
    Deadlocked,
    Done,
    Failed,
    Granted,
    Holder,
    NotHeld,
    Queued,
    Refused,
    Signal,
    TooManyHolds,
    Withdraw,
    Withdrawn,
)
from holdfast.core.settings import Settings
from holdfast.errors import (
    CapacityMismatch,
    DeadlockDetected,
    LockTimeout,
    OperationFailed,
    OutcomeUnknown,
    ReentryLimit,
    SchemaMismatch,
    StoreMisconfigured,
    StoreUnavailable,
    UpgradeRefused,
)

SETTINGS = Settings(margin=1.0, backoff=Backoff(first=0.1, most=2.0))
MINE = Acquire("nightly", "a-1", "worker-7", 30.0, Client("i-1", "alpha", 101), wait=True, limit=3)
SECOND = Acquire("nightly", "a-1.1", "worker-7", 30.0, Client("i-1", "alpha", 101), wait=True, limit=3)
HOLDER = Holder("worker-1", "beta", 202, token=7, held_for=3.0)
WITHDRAW = Withdraw("nightly", "a-1")
PULL = replace(MINE, terms=Terms(operation=True))
KEPT = Done("1", 9, kept=True)
FAILURE = Failure("worker-1", "beta", 202, 7, "no space left")


class Hand:
    """A clock that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Hand:
    return Hand()


def plan_for(clock: Hand, timeout: float | None = 60.0, request: Acquire = MINE, **options):
    return acquire(request, timeout=timeout, settings=SETTINGS, clock=clock, roll=lambda: 0.0, **options)


def result(plan, answer):
    """Send the last answer, and return what the plan returns."""
    with pytest.raises(StopIteration) as stopped:
        plan.send(answer)
    return stopped.value.value


def test_a_grant_is_returned(clock):
    plan = plan_for(clock)
    assert next(plan) == MINE
    grant = result(plan, Granted(token=8, expires_in=30.0, holds=2))
    assert grant == Grant(
        key="nightly",
        attempt="a-1",
        owner="worker-7",
        token=8,
        ttl=30.0,
        trusted_until=29.0,
        holds=2,
        retire=False,
    )


def test_trust_counts_from_before_the_question(clock):
    """P3: a slow answer must not lengthen it."""
    plan = plan_for(clock)
    clock.now = 5.0
    next(plan)
    clock.now = 17.0
    assert result(plan, Granted(8, 30.0)).trusted_until == 5.0 + 30.0 - 1.0


def test_trust_counts_from_the_last_question(clock):
    """P3: that answer speaks of an end that was moved then."""
    plan = plan_for(clock)
    next(plan)
    plan.send(Queued(2, HOLDER, 9.0))
    clock.now = 8.0
    assert plan.send(Signal("granted", "nightly", "a-1")) == MINE
    clock.now = 9.0
    assert result(plan, Granted(8, 30.0)).trusted_until == 8.0 + 30.0 - 1.0


def test_a_lost_answer_is_asked_for_again(clock):
    """P6: attempts are repeatable, so a lost answer costs a round trip and no more."""
    plan = plan_for(clock)
    assert next(plan) == MINE
    assert plan.throw(OutcomeUnknown()) == Wait("nightly", "a-1", until=0.05)
    assert plan.send(None) == MINE


def test_after_a_lost_answer_the_attempt_is_to_be_retired(clock):
    """A copy of the request may still be under way."""
    plan = plan_for(clock)
    next(plan)
    plan.throw(OutcomeUnknown())
    plan.send(None)
    assert result(plan, Granted(8, 30.0)).retire


def test_after_a_request_that_was_certainly_not_applied_nothing_is_under_way(clock):
    plan = plan_for(clock)
    next(plan)
    plan.throw(StoreUnavailable())
    plan.send(None)
    assert not result(plan, Granted(8, 30.0)).retire


def test_a_transport_that_repeats_requests_makes_every_attempt_one_to_retire(clock):
    plan = plan_for(clock, retire=True)
    next(plan)
    assert result(plan, Granted(8, 30.0)).retire


def test_failures_are_spaced_further_and_further_and_success_starts_over(clock):
    """R11."""
    plan = plan_for(clock)
    next(plan)
    waits = []
    for _ in range(3):
        waits.append(plan.throw(StoreUnavailable()).until)
        plan.send(None)
    assert waits == [0.05, 0.1, 0.2]
    plan.send(Queued(2, HOLDER, 9.0))
    plan.send(Signal("granted", "nightly", "a-1"))
    assert plan.throw(StoreUnavailable()).until == 0.05


def test_failures_are_not_borne_past_the_deadline(clock):
    plan = plan_for(clock, timeout=0.12)
    next(plan)
    plan.throw(StoreUnavailable("busy"))
    plan.send(None)
    clock.now = 0.05
    with pytest.raises(StoreUnavailable, match="busy"):
        plan.throw(StoreUnavailable("busy"))


def test_one_try_is_one_try(clock):
    plan = plan_for(clock, timeout=0)
    next(plan)
    with pytest.raises(StoreUnavailable):
        plan.throw(StoreUnavailable())


def test_without_a_deadline_failures_are_borne_for_ever(clock):
    plan = plan_for(clock, timeout=None)
    next(plan)
    for _ in range(50):
        assert isinstance(plan.throw(StoreUnavailable()), Wait)
        clock.now += 1000.0
        assert plan.send(None) == MINE


@pytest.mark.parametrize("error", [SchemaMismatch("old"), StoreMisconfigured("no")])
def test_other_errors_are_raised_at_once(clock, error):
    """R11."""
    plan = plan_for(clock)
    next(plan)
    with pytest.raises(type(error)):
        plan.throw(error)


def test_an_unknown_outcome_that_is_given_up_is_withdrawn(clock):
    """It may have been granted: a lock nobody knows of would be held for a whole ttl."""
    plan = plan_for(clock, timeout=0)
    next(plan)
    assert plan.throw(OutcomeUnknown("lost")) == WITHDRAW
    with pytest.raises(OutcomeUnknown, match="lost"):
        plan.send(Withdrawn())


def test_a_refusal_is_a_timeout_that_names_the_holder(clock):
    plan = plan_for(clock, timeout=0)
    next(plan)
    with pytest.raises(LockTimeout) as caught:
        plan.send(Busy(HOLDER, 12.4))
    error = caught.value
    assert (error.key, error.holder, error.expires_in, error.waited) == ("nightly", HOLDER, 12.4, 0.0)
    assert error.position is None


def test_a_refusal_leaves_nothing_to_withdraw_unless_a_copy_may_come_again(clock):
    plan = plan_for(clock, timeout=0, retire=True)
    next(plan)
    assert plan.send(Busy(HOLDER, 12.4)) == WITHDRAW
    with pytest.raises(LockTimeout):
        plan.send(Withdrawn())


def test_too_many_holds_are_an_error(clock):
    plan = plan_for(clock)
    next(plan)
    with pytest.raises(ReentryLimit) as caught:
        plan.send(TooManyHolds(3))
    assert (caught.value.holds, caught.value.limit, caught.value.owner) == (3, 3, "worker-7")


def test_an_upgrade_is_refused_with_its_reason(clock):
    plan = plan_for(clock)
    next(plan)
    with pytest.raises(UpgradeRefused, match="worker-7"):
        plan.send(Refused("upgrade"))


def test_who_believes_in_another_number_of_permits_is_told_both(clock):
    plan = plan_for(clock, request=replace(MINE, terms=Terms("permits", take=2, permits=4)))
    next(plan)
    with pytest.raises(CapacityMismatch) as caught:
        plan.send(Refused("capacity", 8))
    assert (caught.value.permits, caught.value.stored, caught.value.take) == (4, 8, 2)


def test_the_victim_of_a_deadlock_is_told_the_circle(clock):
    plan = plan_for(clock)
    next(plan)
    cycle = (Link("worker-7", "nightly", "alpha", 101),)
    with pytest.raises(DeadlockDetected) as caught:
        plan.send(Deadlocked(cycle))
    assert (caught.value.key, caught.value.cycle) == ("nightly", cycle)


def test_an_operation_may_be_done_while_we_wait(clock):
    plan = plan_for(clock, request=PULL)
    next(plan)
    plan.send(Queued(1, HOLDER, 20.0))
    assert plan.send(Signal("over", "nightly", "")) == PULL
    assert result(plan, Done('"there"', 9)) == Done('"there"', 9)


def test_an_operation_may_be_given_up_while_we_wait(clock):
    plan = plan_for(clock, request=PULL)
    next(plan)
    with pytest.raises(OperationFailed) as caught:
        plan.send(Failed((FAILURE,)))
    assert caught.value.failures == (FAILURE,)


def test_who_is_to_do_it_is_told_who_failed_before(clock):
    plan = plan_for(clock, request=PULL)
    next(plan)
    grant = result(plan, Granted(9, 30.0, failures=(FAILURE,)))
    assert (grant.terms, grant.failures) == (PULL.terms, (FAILURE,))


def test_a_kept_result_leaves_no_copy_of_the_question_that_could_take_the_lock(clock):
    """It ends no attempt, where what was told to a waiter has."""
    plan = plan_for(clock, request=PULL)
    next(plan)
    assert result(plan, KEPT) == KEPT
    plan = plan_for(clock, request=PULL, retire=True)
    next(plan)
    assert plan.send(KEPT) == WITHDRAW
    assert result(plan, Withdrawn()) == KEPT
    plan = plan_for(clock, request=PULL)
    next(plan)
    plan.throw(OutcomeUnknown("lost"))
    assert plan.send(None) == PULL
    assert plan.send(KEPT) == WITHDRAW
    assert result(plan, Withdrawn()) == KEPT


@pytest.mark.parametrize("answer", [Done("null", 9), Failed(())])
def test_who_only_wants_the_lock_asks_again_when_an_operation_is_over(clock, answer):
    plan = plan_for(clock)
    next(plan)
    assert plan.send(answer) == SECOND


def test_an_attempt_that_has_ended_is_followed_by_another(clock):
    """Invariant 8: granted and lost while the answers were lost. It can never hold again."""
    plan = plan_for(clock)
    next(plan)
    assert plan.send(NotHeld("expired")) == SECOND
    third = plan.send(NotHeld("already"))
    assert third.attempt == "a-1.2"
    assert result(plan, Granted(9, 30.0)).attempt == "a-1.2"


def test_what_is_withdrawn_is_the_attempt_asked_for_last(clock):
    plan = plan_for(clock)
    next(plan)
    assert plan.send(NotHeld("expired")) == SECOND
    assert plan.throw(Abandoned()) == Withdraw("nightly", "a-1.1")


def test_the_head_waits_for_the_end_of_the_lease(clock):
    clock.now = 100.0
    plan = plan_for(clock)
    next(plan)
    assert plan.send(Queued(1, HOLDER, 9.0)) == Wait("nightly", "a-1", until=109.0 + TICK)
    assert plan.send(None) == MINE


def test_the_others_wait_for_a_signal_or_the_deadline(clock):
    """R19: ten thousand waiters are not ten thousand polls."""
    plan = plan_for(clock)
    next(plan)
    assert plan.send(Queued(2, HOLDER, 9.0)) == Wait("nightly", "a-1", until=60.0)


def test_without_a_deadline_they_wait_for_a_signal_alone(clock):
    plan = plan_for(clock, timeout=None)
    next(plan)
    assert plan.send(Queued(2, HOLDER, 9.0)) == Wait("nightly", "a-1", until=None)


def test_a_lease_that_ends_after_the_deadline_is_not_waited_for(clock):
    plan = plan_for(clock, timeout=4.0)
    next(plan)
    assert plan.send(Queued(1, HOLDER, 9.0)) == Wait("nightly", "a-1", until=4.0)


def test_a_grant_signal_is_followed_by_asking_again(clock):
    """No token is taken from a signal: asking again is the truth."""
    plan = plan_for(clock)
    next(plan)
    plan.send(Queued(2, HOLDER, 9.0))
    assert plan.send(Signal("granted", "nightly", "a-1")) == MINE


def test_one_who_becomes_head_watches_from_then_on(clock):
    """P8: else nobody would watch the winner's claim run out."""
    plan = plan_for(clock)
    next(plan)
    plan.send(Queued(2, HOLDER, 9.0))
    clock.now = 3.0
    head = Signal("head", "nightly", "a-1", expires_in=5.0)
    assert plan.send(head) == Wait("nightly", "a-1", until=8.0 + TICK)
    clock.now = 4.0
    assert plan.send(head) == Wait("nightly", "a-1", until=9.0 + TICK)
    assert plan.send(None) == MINE


def test_queued_again_is_waiting_again(clock):
    plan = plan_for(clock)
    next(plan)
    plan.send(Queued(2, HOLDER, 9.0))
    plan.send(Signal("granted", "nightly", "a-1"))
    assert plan.send(Queued(3, HOLDER, 2.0)) == Wait("nightly", "a-1", until=60.0)


def test_when_the_deadline_has_come_the_ticket_is_withdrawn_and_the_timeout_explains(clock):
    plan = plan_for(clock, timeout=4.0)
    next(plan)
    plan.send(Queued(2, HOLDER, 9.0))
    clock.now = 4.0
    assert isinstance(plan.send(None), Acquire)
    successor = replace(HOLDER, owner="worker-9")
    assert plan.send(Queued(1, successor, 7.0)) == WITHDRAW
    with pytest.raises(LockTimeout) as caught:
        plan.send(Withdrawn())
    error = caught.value
    # Who has it now, not who had it when we came.
    assert (error.waited, error.position, error.holder, error.expires_in) == (4.0, 1, successor, 7.0)


def test_a_lock_that_is_handed_over_at_the_deadline_is_taken(clock):
    plan = plan_for(clock, timeout=4.0)
    next(plan)
    plan.send(Queued(1, HOLDER, 9.0))
    clock.now = 4.0
    plan.send(None)
    with pytest.raises(StopIteration) as done:
        plan.send(Granted(42, 30.0))
    assert done.value.value.token == 42


def test_a_store_that_fails_at_the_deadline_does_not_hide_the_timeout(clock):
    plan = plan_for(clock, timeout=4.0)
    next(plan)
    plan.send(Queued(2, HOLDER, 9.0))
    clock.now = 4.0
    plan.send(None)
    assert plan.throw(StoreUnavailable("gone")) == WITHDRAW
    with pytest.raises(LockTimeout) as caught:
        plan.send(Withdrawn())
    assert caught.value.position == 2
    assert isinstance(caught.value.__cause__, StoreUnavailable)


def test_a_withdrawal_that_cannot_be_delivered_does_not_hide_the_timeout(clock):
    """The ticket ends with its patience."""
    plan = plan_for(clock, timeout=4.0)
    next(plan)
    plan.send(Queued(2, HOLDER, 9.0))
    clock.now = 4.0
    plan.send(None)
    plan.send(Queued(2, HOLDER, 5.0))
    with pytest.raises(LockTimeout):
        plan.throw(StoreUnavailable())


def test_a_waiter_whose_store_fails_for_good_withdraws(clock):
    plan = plan_for(clock)
    next(plan)
    plan.send(Queued(2, HOLDER, 9.0))
    plan.send(Signal("granted", "nightly", "a-1"))
    assert plan.throw(SchemaMismatch("new")) == WITHDRAW
    with pytest.raises(SchemaMismatch):
        plan.send(NotHeld("already"))


@pytest.mark.parametrize("moment", ["asking", "backing off", "waiting"])
def test_whoever_is_interrupted_withdraws(clock, moment):
    """R21: Ctrl-C, cancellation. The last wish comes before the interruption goes on."""
    plan = plan_for(clock)
    next(plan)
    if moment == "backing off":
        plan.throw(StoreUnavailable())
    elif moment == "waiting":
        plan.send(Queued(1, HOLDER, 9.0))
    assert plan.throw(Abandoned()) == WITHDRAW
    with pytest.raises(Abandoned):
        plan.send(Withdrawn())


def test_an_interruption_goes_on_even_if_the_last_wish_fails(clock):
    plan = plan_for(clock)
    next(plan)
    plan.throw(Abandoned())
    with pytest.raises(Abandoned):
        plan.throw(OutcomeUnknown())


def test_a_plan_that_is_merely_closed_asks_for_nothing(clock):
    """A closed generator must not yield."""
    plan = plan_for(clock)
    next(plan)
    plan.send(Queued(1, HOLDER, 9.0))
    plan.close()
    with pytest.raises(StopIteration):
        next(plan)


def test_a_grant_that_comes_too_late_to_be_trusted_is_asked_for_again(clock):
    """P3: entering must mean to hold it. Asking again moves the end, and the trust with it."""
    plan = plan_for(clock)
    next(plan)
    clock.now = 30.0
    assert plan.send(Granted(7, 0.5)) == MINE
    clock.now = 31.0
    with pytest.raises(StopIteration) as done:
        plan.send(Granted(7, 30.0))
    grant = done.value.value
    assert grant.trusted_until > clock.now
    assert grant.retire  # the first answer may as well have been lost


def test_a_store_that_is_too_slow_for_the_ttl_is_given_up(clock):
    plan = plan_for(clock)
    next(plan)
    for n in (1, 2):
        clock.now = 30.0 * n
        assert plan.send(Granted(7, 0.5)) == MINE
    clock.now = 90.0
    assert plan.send(Granted(7, 0.5)) == WITHDRAW
    with pytest.raises(StoreUnavailable, match="longer ttl"):
        plan.send(Withdrawn())


def test_an_interrupt_while_withdrawing_withdraws_all_the_same(clock):
    """Ctrl-C twice: the first withdrawal may not have been sent."""
    plan = plan_for(clock)
    next(plan)
    plan.send(Queued(2, HOLDER, 9.0))
    assert plan.throw(Abandoned()) == WITHDRAW
    assert plan.throw(Abandoned()) == WITHDRAW
    with pytest.raises(Abandoned):
        plan.send(Withdrawn())


def test_who_may_be_in_a_queue_asks_again_within_a_heartbeat(clock):
    """P7: its first request may have been heard, and nobody else keeps its ticket alive or claims for it."""
    settings = Settings(heartbeat=0.3, claim=0.5, backoff=Backoff(first=0.1, most=2.0))
    plan = acquire(MINE, timeout=None, settings=settings, clock=clock, roll=lambda: 0.999)
    next(plan)
    for _ in range(10):
        assert plan.throw(OutcomeUnknown()).until <= clock.now + 0.3
        plan.send(None)


# Entering by the hand-over.


def handed_over(clock, now, *, since=0.0, lasts=5.0, enters=True, request=MINE):
    """Hand the lock to a plan that was queued at 0. Return the plan, and what it wants or returns then."""
    plan = plan_for(clock, request=request, enters=enters)
    next(plan)
    plan.send(Queued(1, HOLDER, 9.0))
    clock.now = now
    try:
        return plan, plan.send(Handed(MINE.attempt, 9, since, lasts))
    except StopIteration as done:
        return plan, done.value


def test_a_winner_enters_by_the_hand_over(clock):
    _, grant = handed_over(clock, 1.0)
    assert grant == Grant("nightly", "a-1", "worker-7", 9, 30.0, trusted_until=0.0 + 5.0 - 1.0, lasts=5.0)


def test_trust_in_a_hand_over_counts_from_its_anchor(clock):
    """P3: when the signal came does not matter."""
    assert handed_over(clock, 0.5, since=-0.5)[1].trusted_until == -0.5 + 5.0 - 1.0


@pytest.mark.parametrize("now", [1.6, 3.9, 4.0, 60.0])
def test_too_little_that_is_left_of_a_hand_over_is_claimed(clock, now):
    """The keeper needs time to claim it in the background."""
    plan, step = handed_over(clock, now)
    assert step == MINE
    assert result(plan, Granted(9, 30.0)).trusted_until == now + 30.0 - 1.0


def test_a_lease_that_is_not_renewed_is_claimed(clock):
    assert handed_over(clock, 1.0, enters=False)[1] == MINE


def test_a_lease_that_is_shorter_than_the_claim_window_is_claimed(clock):
    """Otherwise a holder that died would cost more than its ttl."""
    short = replace(MINE, ttl=4.9)
    assert handed_over(clock, 0.0, request=short)[1] == short


def test_after_a_lost_answer_the_winner_of_a_hand_over_is_retired(clock):
    plan = plan_for(clock, enters=True)
    next(plan)
    plan.throw(OutcomeUnknown())
    plan.send(None)
    plan.send(Queued(1, HOLDER, 9.0))
    assert result(plan, Handed(MINE.attempt, 9, clock.now, 5.0)).retire


def test_a_hand_over_to_an_attempt_that_has_ended_is_not_entered(clock):
    """It was broken before we heard of it, and our next attempt waits."""
    plan = plan_for(clock, enters=True)
    next(plan)
    successor = replace(MINE, attempt="a-1.1")
    assert plan.send(NotHeld("broken")) == successor
    assert isinstance(plan.send(Queued(1, HOLDER, 9.0)), Wait)
    assert plan.send(Handed(MINE.attempt, 9, clock.now, 5.0)) == successor


def test_a_hand_over_that_comes_while_the_store_fails_is_asked_about(clock):
    plan = plan_for(clock, enters=True)
    next(plan)
    plan.throw(StoreUnavailable())
    assert plan.send(Handed(MINE.attempt, 9, 0.0, 5.0)) == MINE
