"""What a server logs, and what it never does."""

import io
import json
import logging
import re
import threading

import pytest

from holdfast.log import log as library_log
from holdfast.server.system import logs
from holdfast.server.system.logs import LogLimit, ServerLog

NOON = 1_700_000_000.123
REQUEST = {
    "id": "4f1c",
    "method": "POST",
    "route": "/v1/locks/{key}/acquire",
    "status": 200,
    "seconds": 0.00125,
    "principal": "ci",
    "remote": "10.0.0.7",
    "key": "build:secret-project",
}


def written(format="text", level="info", *, act):
    stream = io.StringIO()
    log = ServerLog(format, level, stream, clock=lambda: NOON)
    act(log)
    log.close()
    return stream.getvalue()


def test_a_request_is_one_line_for_people():
    text = written(act=lambda log: log.request(**REQUEST))
    moment, _, rest = text.partition(" info    ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.123", moment)
    assert rest == "200 POST /v1/locks/{key}/acquire  1.2 ms  ci  10.0.0.7  4f1c\n"


def test_a_request_is_one_object_for_machines():
    assert json.loads(written("json", act=lambda log: log.request(**REQUEST))) == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "info",
        "message": "request",
        "id": "4f1c",
        "method": "POST",
        "route": "/v1/locks/{key}/acquire",
        "status": 200,
        "ms": 1.25,
        "principal": "ci",
        "remote": "10.0.0.7",
    }


@pytest.mark.parametrize("format", ["text", "json"])
def test_keys_are_told_only_to_who_debugs(format):
    assert "secret-project" not in written(format, "info", act=lambda log: log.request(**REQUEST))
    assert "secret-project" in written(format, "debug", act=lambda log: log.request(**REQUEST))


@pytest.mark.parametrize(
    ("method", "route", "status", "level", "is_told"),
    [
        ("GET", "/healthz", 200, "info", False),
        ("GET", "/healthz", 200, "debug", True),
        ("GET", "/readyz", 503, "error", True),
        ("GET", "/metrics", 403, "info", True),
        ("HEAD", "/v1/locks/{key}", 200, "info", False),
        ("POST", "/v1/locks/{key}/acquire", 200, "info", True),
        ("POST", "/v1/locks/{key}/acquire", 200, "warning", False),
        ("GET", "/v1/locks", 500, "error", True),
    ],
)
def test_the_level_decides_which_requests_are_told(method, route, status, level, is_told):
    """Looking is told only to who debugs: machines and dashboards do it all the time."""
    request = {**REQUEST, "method": method, "route": route, "status": status}
    assert bool(written(level=level, act=lambda log: log.request(**request))) is is_told


@pytest.mark.parametrize("format", ["text", "json"])
def test_what_others_send_makes_no_line_of_its_own_and_steers_no_terminal(format):
    request = {**REQUEST, "principal": "x\n2099 info  faked", "remote": "\x1b[2J", "error": "A\u2028B"}
    text = written(format, act=lambda log: log.request(**request))
    assert len(text.splitlines()) == 1
    assert "\x1b" not in text


def test_what_the_library_logs_comes_in_the_same_form():
    def act(log):
        log.install()
        library_log().warning("the feed of %s is late", "nightly")
        try:
            print(1 / 0)
        except ZeroDivisionError:
            library_log().exception("that was unexpected")

    first, second = map(json.loads, written("json", act=act).splitlines())
    assert (first["level"], first["message"]) == ("warning", "the feed of nightly is late")
    assert "ZeroDivisionError" in second["trace"]
    assert "    ZeroDivisionError: division by zero\n" in written("text", act=act)


def test_the_library_s_log_is_given_back():
    logger = logging.getLogger("holdfast")
    before = (logger.handlers, logger.level, logger.propagate)
    written(act=lambda log: log.install())
    assert (logger.handlers, logger.level, logger.propagate) == before


class Stuck(io.StringIO):
    """A reader that does not read until it is told to."""

    def __init__(self):
        super().__init__()
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def write(self, text):
        self.reached.set()
        self.go_on.wait(20)
        return super().write(text)


def test_nobody_waits_for_a_slow_reader_and_what_is_dropped_is_counted(monkeypatch):
    monkeypatch.setattr(logs, "MOST_WAITING", 5)
    stream = Stuck()
    log = ServerLog("text", "info", stream)
    log.say("first")
    assert stream.reached.wait(20)
    for number in range(9):
        log.say(f"line {number}")  # returns, though nothing can be written
    stream.go_on.set()
    log.close()
    assert "first" in stream.getvalue()
    assert "line 4" in stream.getvalue()
    assert "line 5" not in stream.getvalue()
    assert "4 lines were dropped" in stream.getvalue()


def test_a_log_that_cannot_be_written_breaks_nothing():
    stream = io.StringIO()
    stream.close()
    log = ServerLog("json", "info", stream)
    log.request(**REQUEST)
    log.say("still here", thing=object())
    log.close()


def test_of_what_anybody_can_cause_some_lines_are_written_and_the_others_counted():
    def flood(log):
        for number in range(30):
            log.seldom("knocks", f"knock {number}", "warning", remote="10.0.0.7")
            log.request(**{**REQUEST, "status": 401}, known=False)
            log.request(**REQUEST, known=False)  # what went well is no flood
            log.seldom("whispers", "nobody wants to know", "debug")

    lines = [json.loads(line) for line in written("json", act=flood).splitlines()]
    assert [line["message"] for line in lines if line.get("remote") == "10.0.0.7"].count("request") == 40
    assert sum(line["message"].startswith("knock ") for line in lines) == 10
    told = {line["message"]: line["left_out"] for line in lines if "left_out" in line}
    assert told == {
        "20 more lines were left out: knocks": 20,
        "20 more lines were left out: requests of callers not let in: 401": 20,
    }


def test_what_was_left_out_is_told_without_waiting_for_more(monkeypatch):
    monkeypatch.setattr(logs, "SUMMARY", 0.01)
    told = threading.Event()

    class Stream(io.StringIO):
        def write(self, text):
            if "left out" in text:
                told.set()
            return super().write(text)

    log = ServerLog("text", "info", Stream(), clock=lambda: 0.0)
    for _ in range(11):
        log.seldom("knocks", "knock")
    log._clock = log._sparing._clock = lambda: 1000.0
    assert told.wait(30)
    log.close()


def test_who_sets_the_clock_back_does_not_silence_the_log(monkeypatch):
    day = [NOON]
    monkeypatch.setattr(logs.time, "time", lambda: day[0])
    ticks = [0.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: ticks[0])
    stream = io.StringIO()
    log = ServerLog("text", "info", stream)
    for _ in range(11):
        log.seldom("knocks", "knock")
    day[0], ticks[0] = NOON - 3600, 5.0
    log.seldom("knocks", "knock again")
    monkeypatch.undo()
    log.close()
    assert "knock again" in stream.getvalue()


def test_a_quiet_while_gives_new_lines():
    now = [0.0]
    sparing = LogLimit(lambda: now[0])
    assert [sparing.admit("x") for _ in range(12)] == [True] * 10 + [False] * 2
    assert sparing.admit("y")
    assert sparing.left_out() == []
    now[0] = 3.0
    assert [sparing.admit("x") for _ in range(4)] == [True] * 3 + [False]
    now[0] = 10.0
    assert sparing.left_out() == [("x", 3)]
    assert not sparing.pending
