"""What a server counts, read by a parser that accepts the text format of Prometheus and nothing else."""

import math
import re
from pathlib import Path

import pytest

from holdfast.core import cluster as c
from holdfast.core import requests as r
from holdfast.errors import StoreUnavailable
from holdfast.server.system import instruments
from holdfast.server.system.instruments import Counter, Gauge, Histogram
from holdfast.server.system.metrics import Metrics

NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")
CLIENT = r.Client("i", "h", 1)
HOLDER = r.Holder("o", "h", 1, 7, 0.5)


def parse(text):
    """Return {name: (type, {sample name and labels: value})}; complain about whatever is not allowed."""
    assert text.endswith("\n")
    families, current = {}, None
    for line in text[:-1].split("\n"):
        if found := re.fullmatch(rf"# HELP ({NAME}) (?:[^\\]|\\\\|\\n)*", line):
            assert found[1] not in families, "a family twice"
            current, families[found[1]] = found[1], ("", {})
        elif found := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line):
            assert found[1] == current, "a type that is not that of the help before it"
            assert families[current] == ("", {}), "a type twice, or behind its samples"
            families[current] = (found[2], {})
        else:
            found = SAMPLE.fullmatch(line)
            assert found, f"no sample: {line!r}"
            kind, samples = families[current]
            allowed = {f"{current}{end}" for end in ("_bucket", "_sum", "_count")}
            assert found[1] in (allowed if kind == "histogram" else {current})
            labels = tuple(re.findall(LABEL, found[2] or ""))
            assert len(dict(labels)) == len(labels), "a label twice"
            assert (found[1], labels) not in samples, "a series twice"
            samples[found[1], labels] = float(found.groups()[-1])
    for name, (kind, samples) in families.items():
        assert kind, f"{name} has no type"
        if kind == "histogram":
            check_histogram(name, samples)
    return families


def check_histogram(name, samples):
    series = {tuple(p for p in labels if p[0] != "le") for (_, labels) in samples}
    for labels in series:
        buckets = [
            (float(dict(found)["le"]), value)
            for (sample, found), value in samples.items()
            if sample == f"{name}_bucket" and tuple(p for p in found if p[0] != "le") == labels
        ]
        assert buckets == sorted(buckets)
        assert [count for _, count in buckets] == sorted(count for _, count in buckets)
        assert buckets[-1] == (math.inf, samples[f"{name}_count", labels])
        assert (f"{name}_sum", labels) in samples


def values(metrics, name):
    """Return the samples of one family: by the values of their labels."""
    _, samples = parse(metrics.render().decode())[f"holdfast_{name}"]
    return {tuple(value for _, value in labels): number for (_, labels), number in samples.items()}


def acquire(attempt="a-1"):
    return r.Acquire("nightly", attempt, "o", 10.0, CLIENT, wait=True)


def test_a_new_server_has_figures_that_can_be_read():
    families = parse(Metrics().render().decode())
    assert len(families) > 25
    assert all(kind != "counter" or name.endswith("_total") for name, (kind, _) in families.items())


def test_the_reference_has_every_figure_with_its_labels():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text("utf-8")
    rows = re.findall(r"^\| `(holdfast_\w+)` \| (.*?) \|", page, re.MULTILINE)
    told = {name: tuple(re.findall("`([a-z]+)`", labels)) for name, labels in rows}
    there_are = {each.name: each.labels for each in Metrics()._all if each.name.startswith("holdfast_")}
    assert told == there_are


def test_requests_are_counted_by_route_method_and_class_of_status():
    metrics = Metrics()
    for status in (200, 202, 409):
        metrics.observe_request("/v1/locks/{key}/acquire", "POST", status, 0.002)
    metrics.observe_request("(none)", "BREW", 404, 0.001)
    assert values(metrics, "requests_total") == {
        ("/v1/locks/{key}/acquire", "POST", "2xx"): 2,
        ("/v1/locks/{key}/acquire", "POST", "4xx"): 1,
        ("(none)", "other", "4xx"): 1,
    }


def test_a_histogram_counts_what_is_not_larger_than_each_bound():
    histogram = Histogram("sizes", "Sizes.", (1.0, 2.0, 5.0))
    for size in (1, 2, 2, 5, 6):
        histogram.observe(size)
    text = "\n".join(histogram.lines()) + "\n"
    _, samples = parse(text)["sizes"]
    buckets = {dict(labels)["le"]: n for (name, labels), n in samples.items() if name == "sizes_bucket"}
    assert buckets == {"1": 1, "2": 3, "5": 4, "+Inf": 5}
    assert samples["sizes_sum", ()] == 16


def test_what_is_told_of_a_wait_is_the_time_from_the_queue_to_the_grant():
    now = 100.0
    metrics = Metrics(clock=lambda: now)
    metrics.observe_answer(acquire(), r.Queued(3, HOLDER, 5.0))
    metrics.observe_answer(acquire(), r.Queued(1, HOLDER, 5.0))  # it asks again
    now = 104.0
    metrics.observe_answer(acquire(), r.Granted(8, 10.0))
    metrics.observe_answer(acquire("a-2"), r.Granted(9, 10.0))  # it never waited
    assert values(metrics, "queued_total") == {(): 1}
    assert values(metrics, "grants_total") == {(): 2}
    text = metrics.render().decode()
    assert "holdfast_wait_seconds_sum 4\nholdfast_wait_seconds_count 1\n" in text
    assert "holdfast_queue_position_sum 3\nholdfast_queue_position_count 1\n" in text


def test_a_hand_over_that_is_entered_is_a_grant_and_the_end_of_a_wait():
    now = 100.0
    metrics = Metrics(clock=lambda: now)
    metrics.observe_answer(acquire(), r.Queued(3, HOLDER, 5.0))
    now = 104.0
    metrics.entered("a-1")
    metrics.entered("a-2")  # another server has seen it join
    assert values(metrics, "grants_total") == {(): 2}
    assert "holdfast_wait_seconds_sum 4\nholdfast_wait_seconds_count 1\n" in metrics.render().decode()


def test_who_leaves_the_queue_is_not_remembered():
    metrics = Metrics()
    for answer in (r.Queued(1, HOLDER, 5.0), r.Busy(HOLDER, 5.0), r.Queued(1, HOLDER, 5.0)):
        metrics.observe_answer(acquire(), answer)
    metrics.observe_answer(r.Withdraw("nightly", "a-1"), r.Withdrawn())
    metrics.observe_answer(acquire(), r.Granted(8, 10.0))
    assert values(metrics, "queued_total") == {(): 2}
    assert "holdfast_wait_seconds_count 0\n" in metrics.render().decode()


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (r.Busy(HOLDER, 1.0), "busy"),
        (r.TooManyHolds(3), "too_many_holds"),
        (r.Refused("upgrade"), "refused"),
        (r.Deadlocked(()), "deadlocked"),
        (r.Failed(()), "failed"),
        (r.NotHeld("already"), "not_held"),
    ],
)
def test_refusals_are_counted_by_their_kind(answer, name):
    metrics = Metrics()
    metrics.observe_answer(acquire(), answer)
    assert values(metrics, "refusals_total") == {(name,): 1}


def test_hand_overs_and_losses_are_counted():
    metrics = Metrics()
    metrics.observe_answer(r.Release("k", "a", 7), r.Released(0, "somebody"))
    metrics.observe_answer(r.Release("k", "a", 7), r.Released(0))
    metrics.observe_answer(r.Release("k", "a", 7), r.NotHeld("taken over"))
    metrics.observe_answer(r.Release("k", "a", 7), r.NotHeld("already"))  # a repeated one is no loss
    metrics.observe_answer(r.Break("k", "me", "why"), r.Broken(HOLDER, "somebody"))
    lost = r.LeaseAnswer("lost", why="broken", by="ops")
    metrics.observe_answer(r.Renew(), r.Renewed((lost, r.LeaseAnswer("renewed"))))
    assert values(metrics, "handovers_total") == {(): 2}
    assert values(metrics, "losses_total") == {("taken_over",): 1, ("broken",): 1, ("expired",): 0}


def test_the_store_is_counted_by_request_and_error():
    metrics = Metrics()
    requests = [r.Inspect("k"), r.List(), r.Inspect("k")]
    metrics.group_answered(requests, [None, StoreUnavailable("gone"), None], 0.25)
    text = metrics.render().decode()
    assert values(metrics, "store_errors_total") == {("list", "StoreUnavailable"): 1}
    assert "holdfast_commit_size_sum 3\n" in text
    assert 'holdfast_store_seconds_count{request="inspect"} 2\n' in text
    assert 'holdfast_store_seconds_sum{request="inspect"} 0.5\n' in text


def test_what_was_swept_is_counted():
    metrics = Metrics()
    metrics.observe_answer(r.Sweep(), r.Swept(expired=2, locks=3))
    assert values(metrics, "swept_total")["locks",] == 3


def test_an_answer_that_means_nothing_to_it_is_no_error():
    metrics = Metrics()
    before = metrics.render().count(b"\n")
    metrics.observe_answer(r.Inspect("k"), None)
    metrics.observe_answer(object(), object())
    assert metrics.render().count(b"\n") == before


def test_a_figure_is_asked_for_when_somebody_looks_and_left_out_if_it_cannot_be_had():
    gauge = Gauge("things", "Things.", ("kind",))
    gauge.ask(lambda: 4, "good")
    gauge.ask(lambda: None, "unknown")
    gauge.ask(lambda: 1 / 0, "bad")
    gauge.set(2, "own")
    gauge.add(-1, "own")
    assert list(gauge.samples()) == ['things{kind="good"} 4', 'things{kind="own"} 1']


def test_what_is_in_a_label_cannot_end_it():
    counter = Counter("odd_total", 'With "quotes", a \\ and a\nnew line.', ("what",))
    counter.add('a "b"\\\nc')
    _, samples = parse("\n".join(counter.lines()) + "\n")["odd_total"]
    ((_, ((_, value),)),) = samples
    assert value.replace(r"\n", "\n").replace(r"\"", '"').replace(r"\\", "\\") == 'a "b"\\\nc'


@pytest.mark.parametrize("kind", [Counter, Histogram])
def test_there_are_only_so_many_series(kind):
    """Labels are few by design. If that is wrong one day, memory is bounded all the same."""
    many = instruments.MOST_SERIES + 50
    instrument = kind("x_total", "X.", *([(1.0,)] if kind is Histogram else []), labels=("key",))
    for number in range(many):
        instrument.add(str(number)) if kind is Counter else instrument.observe(1.0, str(number))
    series = instrument.values if kind is Counter else instrument.counts
    assert len(series) == instruments.MOST_SERIES + 1
    assert ("other",) in series


def test_attempts_in_queues_are_remembered_up_to_a_number(monkeypatch):
    monkeypatch.setattr("holdfast.server.system.metrics.MOST_REMEMBERED", 2)
    metrics = Metrics()
    for number in range(3):
        metrics.observe_answer(acquire(f"a-{number}"), r.Queued(1, HOLDER, 5.0))
    for number in range(3):
        metrics.observe_answer(acquire(f"a-{number}"), r.Granted(8, 10.0))
    assert "holdfast_wait_seconds_count 2\n" in metrics.render().decode()


CLAIM = c.Claim("e-1", 1, "a", ("job",), 8, 30.0, CLIENT)
ASSIGN = c.Assign("job:1", "a", "o", 30.0, CLIENT)
GIVEN = c.Assigned("job:1", "a", 7, "null", 1, 30.0)
ENDED = c.WorkView("job:1", "completed", "1", "2", 1, 0, "e-1", 7, 1.0, 2.0, 3.0)


def test_claims_are_counted_by_what_came_of_them():
    metrics = Metrics()
    for answer in (c.Claimed((GIVEN, GIVEN)), c.Claimed(), c.Claimed(), c.Beat("dead")):
        metrics.observe_answer(CLAIM, answer)
    assert values(metrics, "claims_total") == {("work",): 1, ("nothing",): 2, ("not_alive",): 1}
    assert values(metrics, "claimed_total") == {(): 2}
    assert values(metrics, "grants_total") == {(): 2}


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (GIVEN, "assigned"),
        (r.Busy(HOLDER, 1.0), "busy"),
        (r.NotHeld("already"), "not_held"),
        (c.Full(8), "full"),
        (c.NotDue(3.0), "not_due"),
        (c.Ended(ENDED), "ended"),
        (c.Beat("left"), "not_alive"),
    ],
)
def test_assigns_are_counted_by_what_came_of_them(answer, name):
    metrics = Metrics()
    metrics.observe_answer(ASSIGN, answer)
    assert values(metrics, "assigns_total") == {(name,): 1}
    assert values(metrics, "grants_total") == {(): int(name == "assigned")}
    assert values(metrics, "refusals_total") == {}


def test_finishes_are_counted_by_how_they_were_to_end_and_what_was_lost_as_such():
    metrics = Metrics()
    for ending in ("completed", "completed", "failed", "returned"):
        metrics.observe_answer(c.Finish("job:1", "a", 7, ending), c.Finished("offered"))
    metrics.observe_answer(c.Finish("job:1", "a", 7, "completed"), c.Finished("completed", "somebody"))
    metrics.observe_answer(c.Finish("job:1", "a", 7, "completed"), r.NotHeld("expired"))
    metrics.observe_answer(c.Finish("job:1", "a", 7, "completed"), r.NotHeld("already"))
    assert values(metrics, "finishes_total") == {
        ("completed",): 3,
        ("failed",): 1,
        ("returned",): 1,
        ("not_held",): 2,
    }
    assert values(metrics, "handovers_total") == {(): 1}
    assert values(metrics, "losses_total")["expired",] == 1
