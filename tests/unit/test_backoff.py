"""How long to wait before asking a failing store again."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.backoff import Backoff

rolls = st.floats(0, 1, exclude_max=True)
failures = st.integers(1, 10_000)
seconds = st.floats(0.001, 100)


def test_the_delay_doubles_up_to_the_most():
    backoff = Backoff(first=0.1, most=1.0)
    assert [backoff.delay(n, 0.0) for n in range(1, 7)] == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]


def test_a_roll_spreads_the_delay_over_its_upper_half():
    backoff = Backoff(first=1.0, most=8.0)
    assert [backoff.delay(2, roll) for roll in (0.0, 0.5)] == [1.0, 1.5]


@given(seconds, seconds, failures, rolls)
def test_a_delay_is_never_nothing_and_never_more_than_the_most(first, most, count, roll):
    assert 0 < Backoff(first, most).delay(count, roll) <= most


@given(seconds, failures, rolls)
def test_more_failures_never_mean_less_patience(first, count, roll):
    backoff = Backoff(first, most=1000.0)
    assert backoff.delay(count, roll) <= backoff.delay(count + 1, roll)
