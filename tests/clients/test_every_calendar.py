"""When schedules tick: pure, so nobody waits and no clock is asked."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast import SettingsError
from holdfast.client.calendar import Cron, Interval, calendar, read

BERLIN = "Europe/Berlin"
SPRING = datetime(2026, 3, 28, 12, tzinfo=ZoneInfo(BERLIN))  # the night after it 02:00 is followed by 03:00
AUTUMN = datetime(2026, 10, 24, 12, tzinfo=ZoneInfo(BERLIN))  # and here 03:00 by 02:00

EXPRESSIONS = [
    "* * * * *",
    "*/7 * * * *",
    "30 2 * * *",
    "0 2 * * *",
    "0,30 2,3 * * *",
    "0 */2 * * *",
    "5,35 2 * * SUN",
    "0 0 * * *",
    "30 0 1 * *",
    "0 9 * * MON-FRI",
    "0 0 29 2 *",
    "*/20 * * * * *",
    "@hourly",
]
ZONES = ["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Africa/Cairo"]


def ticks(expression: str, since: datetime, hours: int) -> list[str]:
    """Return the ticks in the hours after an instant, as a clock on the wall in Berlin shows them."""
    found = []
    schedule = calendar(expression, BERLIN)
    at = since.timestamp()
    end = at + hours * 3600
    while (at := schedule.after(at)) <= end:
        found.append(datetime.fromtimestamp(at, ZoneInfo(BERLIN)).strftime("%d. %H:%M %Z"))
    return found


def test_intervals_are_aligned_so_that_all_nodes_have_the_same_ticks():
    five = calendar(timedelta(minutes=5), "UTC")
    assert five == calendar(300, "UTC")
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp()
    assert five.after(noon - 0.001) == noon
    assert five.after(noon) == noon + 300
    assert five.latest(noon) == noon
    assert five.latest(noon + 299.999) == noon


@given(micros=st.integers(100_000, 10**12), at=st.integers(0, 4 * 10**15))
def test_intervals_leave_nothing_out_and_count_nothing_twice(micros, at):
    interval = Interval(micros)
    after, latest = interval.after(at / 1e6), interval.latest(at / 1e6)
    assert latest <= at / 1e6 < after
    assert round((after - latest) * 1e6) == micros
    assert interval.latest(after) == after


@settings(max_examples=300, deadline=None)
@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(ZONES),
    at=st.integers(1_767_225_600 * 4, 1_830_297_600 * 4).map(lambda quarter: quarter / 4),
)
@example(expression="30 2 * * *", zone=BERLIN, at=datetime(2026, 10, 25, 1, 10, tzinfo=UTC).timestamp())
@example(expression="30 2 * * *", zone=BERLIN, at=datetime(2026, 3, 29, 1, 0, tzinfo=UTC).timestamp())
def test_what_is_found_forwards_is_found_backwards(expression, zone, at):
    """Whatever the clocks on the wall do: every instant is between two ticks that follow each other."""
    cron = Cron(expression, zone)
    latest, after = cron.latest(at), cron.after(at)
    assert latest <= at < after
    assert cron.after(latest) == after
    assert cron.latest(after) == after
    assert cron.latest(after - 0.25) == latest


def test_a_fixed_time_that_is_left_out_in_spring_comes_right_after():
    assert ticks("30 2 * * *", SPRING, 48) == ["29. 03:00 CEST", "30. 02:30 CEST"]


def test_a_fixed_time_that_comes_twice_in_autumn_counts_once():
    assert ticks("30 2 * * *", AUTUMN, 48) == ["25. 02:30 CEST", "26. 02:30 CET"]


def test_what_comes_all_the_time_goes_on_evenly_when_clocks_change():
    night = SPRING.replace(hour=23)
    assert ticks("0 * * * *", night, 5) == [
        "29. 00:00 CET",
        "29. 01:00 CET",
        "29. 03:00 CEST",
        "29. 04:00 CEST",
        "29. 05:00 CEST",
    ]
    assert ticks("0 * * * *", AUTUMN.replace(hour=23), 5) == [
        "25. 00:00 CEST",
        "25. 01:00 CEST",
        "25. 02:00 CEST",
        "25. 02:00 CET",
        "25. 03:00 CET",
    ]


def test_a_day_in_another_zone_begins_when_it_does_there():
    tick = calendar("@daily", "Asia/Tokyo").after(datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp())
    assert datetime.fromtimestamp(tick, UTC) == datetime(2026, 5, 1, 15, tzinfo=UTC)


@pytest.mark.parametrize("schedule", ["*/5  *  * * *", 90, timedelta(hours=1), "@weekly"])
def test_another_node_reads_what_was_written_down(schedule):
    written = calendar(schedule, BERLIN)
    assert read(written.text) == written
    assert hash(read(written.text)) == hash(written)


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("* * *", "five fields"),
        ("61 * * * *", "Bad minute"),
        ("", "five fields"),
        ("@often", "five fields"),
        ("* * */20 * 1L", "no tick"),
        ("0 0 31 2 *", "Bad day"),
        (0, "0.1 to"),
        (0.01, "0.1 to"),
        (1e12, "0.1 to"),
        (-1, "not negative"),
        (None, "seconds or a timedelta"),
        (True, "seconds or a timedelta"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(schedule, said):
    with pytest.raises(SettingsError, match=said):
        calendar(schedule, "UTC")


@pytest.mark.parametrize("timezone", ["Europe/Atlantis", "", "../UTC", "x" * 5000, 7, None])
def test_a_time_zone_that_is_not_known_is_refused(timezone):
    with pytest.raises(SettingsError, match="timezone"):
        calendar(60, timezone)


def test_without_cronsim_it_says_what_to_install_and_intervals_work():
    code = """
        import sys
        sys.modules["cronsim"] = None
        from holdfast.client.calendar import calendar
        assert calendar(60, "UTC").after(0) == 60
        try:
            calendar("* * * * *", "UTC")
        except ValueError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert "pip install 'holdfast[cron]'" in done.stdout
