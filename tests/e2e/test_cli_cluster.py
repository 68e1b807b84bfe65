"""`holdfast instances` and `holdfast work`, on every store and through a server; what doctor says of them."""

import json
import os
import re
import sqlite3
import subprocess
from contextlib import closing

import pytest

from holdfast.cli.instances import LAYOUT, bar
from holdfast.cli.output import fitted, width_of
from holdfast.cli.work_view import LAYOUT as WORK_LAYOUT
from tests.e2e.fleet import fleet_at
from tests.e2e.serving import served
from tests.e2e.support import holdfast, output
from tests.e2e.test_cli_locks import at_terminal


@pytest.fixture(params=["sqlite", "postgres_locks", "mariadb_locks", "http"])
def fleet(request, url, monkeypatch):
    """Instances on a store of each kind, which is the command line's default."""
    if request.param == "http":
        with served("--url", url) as server, fleet_at(server.url) as fleet:
            monkeypatch.setenv("HOLDFAST_URL", server.url)
            yield fleet
        return
    if request.param != "sqlite":
        url = request.getfixturevalue(request.param)
        monkeypatch.setenv("HOLDFAST_URL", url)
    with fleet_at(url) as fleet:
        yield fleet


@pytest.fixture
def one(url):
    """Instances in a file."""
    with fleet_at(url) as fleet:
        yield fleet


def lines(*args):
    return [json.loads(line) for line in output(*args).splitlines()]


def table(text):
    """Return the rows of a table, split at what divides its columns."""
    rows = text.partition("\n\n")[2] or text
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in rows.splitlines()]


# instances


def test_who_is_there_is_shown_with_what_it_has(fleet):
    first, second = fleet.join("worker-1", version="1.4.2"), fleet.join("worker-2", capacity=8)
    fleet.offer(*(f"report:{number}" for number in range(4)))
    fleet.claim(first, "report", limit=2)
    fleet.drain(second)
    head, one, two = output("instances").splitlines()
    assert head.split() == ["NAME", "STATE", "WORK", "HOST:PID", "BEAT", "THERE", "FOR", "VERSION", "ID"]
    assert one.split()[:2] == ["worker-1", "alive"]
    assert one.split()[3:5] == ["2/4", "host-1:4242"]
    assert one.split()[-2:] == ["1.4.2", first]
    assert two.split()[:2] == ["worker-2", "draining"]
    assert two.split()[3] == "0/8"
    (found, _) = lines("instances", "--json")
    assert {name: found[name] for name in ("id", "name", "state", "capacity", "assigned", "pid")} == {
        "id": first,
        "name": "worker-1",
        "state": "alive",
        "capacity": 4,
        "assigned": 2,
        "pid": 4242,
    }


def test_who_has_left_or_died_is_shown_if_one_wants_to_know(one):
    one.join("here")
    one.leave(one.join("gone"))
    one.join("dead", ttl=0.001)
    done = holdfast("instances")
    assert [row[0] for row in table(done.stdout)[1:]] == ["here"]
    assert done.stderr == "holdfast: 2 instances have left or died: see --all\n"
    states = {each["name"]: each["state"] for each in lines("instances", "--all", "--json")}
    assert states == {"here": "alive", "gone": "left", "dead": "dead"}


def test_the_dead_that_still_have_work_are_shown_anyway(one):
    one.offer("report:1")
    with fleet_at(os.environ["HOLDFAST_URL"]) as other:
        id = other.join("dead", ttl=3.0)
        assert other.claim(id, "report")
        while lines("instances", "--json")[0]["state"] != "dead":
            pass
    name, state, work, *_ = table(output("instances"))[1]
    assert (name, state, work[-3:]) == ("dead", "dead", "1/4")


def test_nobody_is_told_with_where_one_looked(url, locks):
    done = holdfast("instances")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"holdfast: nobody has joined in {url}\n"
    assert output("instances", "--json") == ""


def test_looking_makes_no_file(url, tmp_path):
    for command in (("instances",), ("work",), ("work", "show", "k"), ("work", "retry", "k")):
        assert holdfast(*command).returncode == 79
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("taken", "capacity", "filled"), [(0, 8, 0), (1, 100, 1), (4, 8, 4), (8, 8, 8), (9, 8, 8), (0, 0, 0)]
)
def test_a_capacity_has_a_picture(taken, capacity, filled, monkeypatch):
    picture = bar(taken, capacity)
    assert sum(sign in "█#" for sign in picture) == filled
    assert picture.endswith(f" {taken}/{capacity}")


def test_a_terminal_without_such_signs_gets_others(one, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    one.offer("report:1")
    one.claim(one.join("worker-1", capacity=2), "report")
    assert "####.... 1/2" in output("instances")


@pytest.mark.parametrize("layout", [LAYOUT, WORK_LAYOUT])
@pytest.mark.parametrize("width", [160, 100, 80, 60, 40])
def test_tables_fit_into_any_terminal(layout, width):
    long = dict.fromkeys(layout.shrink, "x" * 50)
    rows = fitted(layout, [tuple(long.get(name, "8 chars.") for name in layout.header)], width)
    assert all(width_of("  ".join(cells)) <= width for cells in rows)
    assert rows[0][0].strip()


# work: looking


def test_work_is_listed_with_who_has_it_and_what_came_of_it(fleet):
    worker = fleet.join("worker-1")
    fleet.offer("report:1", "report:2", "report:3", max_tries=3)
    fleet.offer("report:4", delay=3600)
    fleet.offer("mail:1")
    done, bad, _ = fleet.claim(worker, "report", limit=3)
    fleet.finish(done, "completed", '{"pages": 4}')
    fleet.finish(bad, "failed", "disk full")
    text = output("work")
    counts = [re.sub(r" \(the oldest is due for .*?\)", "", line) for line in text.splitlines()[:2]]
    assert counts == ["mail: 1 offered", "report: 1 offered, 1 assigned, 1 failed"]
    head, *rows = table(text)
    assert head == ["KEY", "STATE", "WHEN", "TRIES", "INSTANCE", "RESULT OR ERROR"]
    assert [row[:2] for row in rows] == [
        ["mail:1", "offered"],
        ["report:2", "failed"],
        ["report:3", "assigned"],
        ["report:4", "offered"],
    ]
    assert rows[1][3:] == ["1/3", "worker-1", "disk full"]
    assert rows[3][2].startswith("due in 59m")
    (completed,) = lines("work", "list", "--state", "completed", "--json")
    assert (completed["key"], completed["text"]) == ("report:1", '{"pages": 4}')


def test_work_can_be_chosen(one):
    first, second = one.join("a"), one.join("b")
    one.offer("report:1", "report:2", "mail:1", "mail:2", "plain")
    one.claim(first, "report")
    one.claim(second, "mail")

    def keys(*args):
        return [each["key"] for each in lines("work", "list", "--json", *args)]

    assert keys() == ["mail:1", "mail:2", "plain", "report:1", "report:2"]
    assert keys("mail:") == ["mail:1", "mail:2"]
    assert keys("--state", "assigned") == ["mail:1", "report:1"]
    assert keys("--state", "offered") == ["mail:2", "plain", "report:2"]
    assert keys("--instance", "a") == ["report:1"]
    assert keys("--instance", second) == ["mail:1"]
    assert keys("--instance", "nobody") == []
    assert keys("--limit", "2") == ["mail:1", "mail:2"]
    assert [row[0] for row in table(output("work", "list", "mail:"))[1:]] == ["mail:1", "mail:2"]
    assert output("work", "list", "mail:").startswith("mail: ")


def test_a_long_list_is_cut_and_says_so(one):
    one.offer(*(f"report:{number:03}" for number in range(130)))
    done = holdfast("work")
    assert len(table(done.stdout)) == 101
    assert "there is more than these 100" in done.stderr
    assert len(lines("work", "--json")) == 130


def test_one_piece_of_work_is_shown_with_all_about_it(fleet):
    worker = fleet.join("worker-1")
    fleet.offer("report:1", data={"month": "11", "to": ["ada"]}, max_tries=3)
    (work,) = fleet.claim(worker, "report")
    text = output("work", "show", "report:1")
    assert f"instance  worker-1 ({worker})" in text or f"/{worker})" in text
    assert f"token {work.token}" in text
    assert "tries     1 of 3" in text
    assert '"month": "11"' in text
    assert "host host-1, pid 4242" in text  # of its lease
    assert "unless it is renewed" in text
    fleet.finish(work, "failed", "disk full")
    text = output("work", "show", "report:1")
    assert "error     disk full" in text
    assert "state     failed, " in text
    data = json.loads(output("work", "show", "report:1", "--json"))
    assert (data["state"], data["text"], data["tries"]) == ("failed", "disk full", 1)
    assert [event["kind"] for event in data["history"]] == ["failed"]


def test_a_lease_that_is_over_is_told(one):
    one.offer("report:1")
    one.claim(one.join("worker-1"), "report", ttl=0.001)
    assert "lease     is over; somebody takes the work over" in output("work", "show", "report:1")


def test_what_others_wrote_cannot_steer_the_terminal(one, tmp_path):
    worker = one.join("worker-1")
    one.offer("report:1")
    (work,) = one.claim(worker, "report")
    one.finish(work, "failed", "\x1b[2Jgone\u2028")
    with closing(sqlite3.connect(tmp_path / "locks.db", isolation_level=None)) as other:
        (table_name,) = other.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'holdfast_instan%'"
        ).fetchone()
        other.execute(f"UPDATE {table_name} SET name = ?", ("evil\x1b]0;x\x07",))
    for command in (("instances",), ("work",), ("work", "show", "report:1")):
        text = output(*command)
        assert "\x1b" not in text
        assert "\\x1b" in text


# work: doing


def test_work_is_offered_once_however_often_one_says_so(fleet):
    args = ("work", "offer", "report:1", "report:2", "--data", '{"n": 1}', "--max-tries", "3")
    assert output(*args) == "'report:1' is offered\n'report:2' is offered\n"
    assert output(*args).startswith("'report:1' is offered already\n")
    worker = fleet.join("worker-1")
    one, _ = fleet.claim(worker, "report", limit=2)
    assert json.loads(one.data) == {"n": 1}
    fleet.finish(one, "failed", "disk full")
    assert "'report:1' has failed already; 'holdfast work retry' offers it anew" in output(*args)
    assert lines(*args, "--json") == [
        {"key": "report:1", "state": "failed", "new": False},
        {"key": "report:2", "state": "assigned", "new": False},
    ]


def test_work_can_be_offered_for_later(one):
    assert output("work", "offer", "report:1", "--delay", "1h") == (
        "'report:1' is offered, to be claimed in 1h00m\n"
    )
    assert one.claim(one.join("worker-1"), "report") == []


def test_what_failed_is_tried_anew_with_the_data_it_had(fleet):
    worker = fleet.join("worker-1")
    fleet.offer("report:1", "report:2", data={"n": 7}, max_tries=2)
    for work in fleet.claim(worker, "report", limit=2):
        fleet.finish(work, "failed", "disk full")
    assert output("work", "retry", "report:1") == "'report:1' is offered anew\n"
    (work,) = fleet.claim(worker, "report")
    assert (work.key, work.data, work.tries) == ("report:1", '{"n": 7}', 1)
    done = holdfast("work", "retry", "report:1")
    assert (done.returncode, done.stderr) == (
        1,
        "holdfast: 'report:1' is assigned, and not over: nothing was done\n",
    )
    assert output("work", "retry", "report:*", "--data", '"other"') == "'report:2' is offered anew\n"
    (work,) = fleet.claim(worker, "report")
    assert (work.key, work.data) == ("report:2", '"other"')
    done = holdfast("work", "retry", "report:*")
    assert (done.returncode, done.stderr) == (0, "holdfast: none such has failed\n")


def test_work_is_forgotten_unless_somebody_has_it(fleet):
    worker = fleet.join("worker-1")
    fleet.offer("report:1", "report:2")
    fleet.claim(worker, "report")
    done = holdfast("work", "forget", "report:1", "report:2", "--yes")
    assert done.returncode == 75
    assert done.stdout == "'report:2', which was offered, is forgotten\n"
    assert "'report:1' is assigned to " in done.stderr
    assert "'holdfast break' its lock" in done.stderr
    output("break", "report:1", "--reason", "stuck", "--yes")
    assert output("work", "forget", "report:1", "--yes").endswith("is forgotten\n")
    assert output("work", "list", "--state", "all", "--json") == ""


def test_forgetting_needs_a_yes(one):
    one.offer("report:1")
    done = holdfast("work", "forget", "report:1", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (64, "")
    code, seen = at_terminal(["work", "forget", "report:1"], b"n\n")
    assert code == 1
    assert "forget 'report:1', with data and result?" in " ".join(seen.split())
    code, seen = at_terminal(["work", "forget", "report:1"], b"y\n")
    assert code == 0
    assert "is forgotten" in seen


@pytest.mark.parametrize("action", ["show", "retry", "forget"])
def test_what_was_never_offered_exits_with_1(one, action):
    args = ("--yes",) if action == "forget" else ()
    done = holdfast("work", action, "nothing", *args)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "holdfast: there is no work 'nothing': it was never offered, or ended long ago\n"


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("offer",), "which?"),
        (("show", "a", "b"), "which?"),
        (("list", "a", "b"), "one prefix"),
        (("offer", "a", "--data", "{"), "--data is no JSON"),
        (("offer", "a", "--data", json.dumps("x" * 70_000)), "65536 are allowed"),
        (("offer", "a\n"), "forbidden character"),
        (("offer", "a", "--max-tries", "-1"), "--max-tries is -1"),
        (("offer", "a", "--state", "failed"), "--state is for 'holdfast work list'"),
        (("list", "--data", "1"), "--data is for 'holdfast work offer or retry'"),
        (("list", "--state", "odd"), "invalid choice"),
        (("do", "a"), "invalid choice"),
    ],
)
def test_what_makes_no_sense_is_refused(args, complaint, url, tmp_path):
    done = holdfast("work", *args)
    assert (done.returncode, done.stdout) == (64, "")
    assert complaint in done.stderr
    assert list(tmp_path.iterdir()) == []


# doctor


def doctor():
    found = lines("doctor", "--json")
    return {each["name"]: each for each in found}


def test_doctor_says_nothing_of_a_cluster_that_is_none(locks):
    assert "instances" not in doctor()


def test_doctor_says_what_nobody_takes_care_of(fleet):
    worker = fleet.join("worker-1")
    fleet.offer("report:1", "report:2", "mail:1")
    (work,) = fleet.claim(worker, "report")
    found = doctor()
    assert found["instances"]["text"] == "1 alive; 1 of 4 places for work taken"
    assert found["work"]["text"] == "2 offered, 1 assigned, of 2 types"
    assert "failed work" not in found
    fleet.finish(work, "failed", "disk full")
    found = doctor()
    assert (found["failed work"]["good"], found["failed work"]["text"]) == (None, "1 piece of type 'report'")
    assert "holdfast work retry" in found["failed work"]["advice"]


def test_doctor_tells_of_work_that_a_dead_instance_has(one):
    one.offer("report:1")
    assert one.claim(one.join("worker-1", ttl=3.0), "report")
    while lines("instances", "--json")[0]["state"] != "dead":
        pass
    assert doctor()["dead instances"]["text"] == "'worker-1' died with 1 piece of work, not taken over yet"


def test_doctor_tells_of_work_that_nobody_claims(one):
    one.offer("report:1", at=1_000_000.0)
    assert doctor()["unclaimed work"]["text"].startswith("of type 'report': it is due for up to ")
