"""Settings are checked when they are made (R13)."""

import math
from datetime import timedelta

import pytest

from holdfast.core.data import replace
from holdfast.core.settings import MAX_TTL, Settings, seconds
from holdfast.errors import SettingsError


def test_the_defaults_are_sound():
    settings = Settings()
    assert settings.heartbeat < settings.claim < settings.patience
    assert settings.check_ttl(settings.ttl) == 30.0


@pytest.mark.parametrize(
    ("value", "expected"), [(3, 3.0), (0.5, 0.5), (0, 0.0), (timedelta(minutes=2, milliseconds=5), 120.005)]
)
def test_durations_are_numbers_or_timedeltas(value, expected):
    result = seconds(value, "ttl")
    assert result == expected
    assert type(result) is float


@pytest.mark.parametrize(
    "value", ["3", None, True, [], math.inf, math.nan, -1, 10**400, timedelta(seconds=-1)]
)
def test_anything_else_is_refused_by_its_name(value):
    with pytest.raises(SettingsError, match=r"^ttl is "):
        seconds(value, "ttl")


def test_durations_are_kept_in_seconds():
    settings = Settings(ttl=timedelta(minutes=1), max_hold=timedelta(hours=1), sweep_every=60, margin=1)
    assert (settings.ttl, settings.max_hold, settings.sweep_every, settings.margin) == (
        60.0,
        3600.0,
        60.0,
        1.0,
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ttl": -1}, "ttl"),
        ({"ttl": "long"}, "ttl"),
        ({"max_hold": -1}, "max_hold"),
        ({"margin": "some"}, "margin"),
        ({"renew_at": 0}, "renew_at"),
        ({"renew_at": 1}, "renew_at"),
        ({"renew_at": 1.5}, "renew_at"),
        ({"heartbeat": 0}, "heartbeat"),
        ({"heartbeat": 5.0}, "heartbeat"),
        ({"claim": 15.0}, "claim"),
        ({"patience": 4.0}, "patience"),
        ({"limit": 0}, "limit"),
        ({"limit": True}, "limit"),
        ({"limit": 2.5}, "limit"),
        ({"sweep_every": 0}, "sweep_every"),
        ({"enters": 1}, "enters is 1"),
        ({"max_hold": 0}, "max_hold"),
        ({"backoff": 0.5}, "backoff"),
        ({"history": "some"}, "history"),
        ({"ttl": 0}, "ttl"),
        ({"margin": 40}, "margin"),
        ({"release_timeout": -1}, "release_timeout"),
    ],
)
def test_what_cannot_work_is_refused(wrong, message):
    with pytest.raises(SettingsError, match=message):
        Settings(**wrong)


def test_what_is_optional_may_be_left_out():
    settings = Settings(sweep_every=None, max_hold=None, margin=None)
    assert (settings.sweep_every, settings.max_hold, settings.margin) == (None, None, None)


def test_the_margin_grows_with_the_ttl():
    """P3: a hundredth for clocks at different rates, 20 ms for their resolution."""
    assert Settings().margin_for(30.0) == pytest.approx(0.32)
    assert Settings().margin_for(0.1) == pytest.approx(0.021)


def test_a_margin_that_was_given_is_the_margin():
    assert Settings(margin=2.0).margin_for(1000.0) == 2.0
    assert Settings(margin=0).margin_for(1000.0) == 0.0


def test_a_ttl_must_be_longer_than_its_margin():
    with pytest.raises(SettingsError, match="not longer than the margin"):
        Settings().check_ttl(0.02)


def test_a_lease_must_be_renewed_while_it_is_trusted():
    """R13."""
    with pytest.raises(SettingsError, match="not trusted any more"):
        Settings().check_ttl(0.05)
    with pytest.raises(SettingsError, match="not trusted any more"):
        Settings(renew_at=0.995)


def test_a_ttl_has_an_upper_limit():
    assert Settings().check_ttl(MAX_TTL) == MAX_TTL
    with pytest.raises(SettingsError, match="at most"):
        Settings().check_ttl(MAX_TTL + 1)


def test_a_ttl_may_be_a_timedelta():
    assert Settings().check_ttl(timedelta(seconds=5)) == 5.0


def test_settings_can_be_changed_by_making_others():
    assert replace(Settings(), ttl=60).ttl == 60.0
    with pytest.raises(SettingsError):
        replace(Settings(), ttl=0)
