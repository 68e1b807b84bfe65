"""`holdfast watch`, `resize`, and what the other commands say of shared locks, semaphores and operations."""

import json
import signal
import subprocess
import time

import pytest

from holdfast import LeaseLost
from tests.e2e.support import HOLDFAST, holdfast, output


def words(text):
    return [line.split() for line in text.splitlines()]


# watch


def test_watch_prints_a_line_for_each_event_with_its_id_first(locks):
    with locks.operation("pull", "model", owner="worker-7") as pull:
        pull.succeed("/models/7b")
    with locks.operation("delete", "model", owner="worker-8"):
        pass
    lines = output("watch", "pull:*", "--after", "0", "--timeout", "0").splitlines()
    assert [line.split()[3:6] for line in lines] == [
        ["granted", "pull:model", "worker-7"],
        ["completed", "pull:model", "worker-7"],
    ]
    ids = [int(line.split()[0]) for line in lines]
    assert ids == sorted(ids)
    (last,) = output("watch", "pull:*", "--after", str(ids[0]), "--timeout", "0").splitlines()
    assert last == lines[1]


def test_watch_json_has_the_fields_of_an_event(locks):
    with pytest.raises(ZeroDivisionError), locks.operation("pull", "model", owner="worker-7"):
        print(1 / 0)
    lines = output("watch", "pull:model", "--after", "0", "--timeout", "0", "--json").splitlines()
    granted, failed = map(json.loads, lines)
    assert (granted["kind"], failed["kind"]) == ("granted", "failed")
    assert failed["reason"] == "ZeroDivisionError: division by zero"
    assert failed["token"] == granted["token"]


def test_watch_tells_what_happens_while_it_watches(locks, tmp_path):
    """From now on: what was before is not shown. Told to end by Ctrl-C, it ends without a word."""
    with locks.operation("pull", "before"):
        pass
    seen = tmp_path / "seen"
    with seen.open("w") as file:
        process = subprocess.Popen([*HOLDFAST, "watch", "pull:*"], stdout=file, stderr=subprocess.PIPE)
    with process:
        number = 0
        while "completed" not in seen.read_text():
            assert process.poll() is None
            with locks.operation("pull", f"model-{number}"):
                number += 1
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert (process.wait(10), process.stderr.read()) == (130, b"")
    assert "pull:before" not in seen.read_text()


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["watch", "a\tb"], 64, "forbidden character"),
        (["watch", "k", "--after", "-1"], 64, "after is -1"),
        (["watch", "k", "--after", "soon"], 64, "try 'holdfast watch --help'"),
        (["resize", "k", "0"], 64, "permits is 0"),
        (["resize", "k", "many"], 64, "try 'holdfast resize --help'"),
        (["watch", "k", "--url", "sqlite:///no-such.db"], 79, "nothing was ever locked there"),
    ],
)
def test_wrong_usage_is_one_line(locks, args, code, message):
    done = holdfast(*args)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


# resize


def test_resize_says_what_it_was(locks):
    assert output("resize", "gpu", "4") == "'gpu' has 4 permits now; nobody had said a number before\n"
    assert output("resize", "gpu", "1", "--by", "ops") == "'gpu' has 1 permit now; it had 4\n"
    assert json.loads(output("resize", "gpu", "2", "--json")) == {"key": "gpu", "permits": 2, "before": 1}
    with locks.semaphore("gpu", permits=2):
        pass
    assert any(event.kind == "resized" and event.by == "ops" for event in locks.history("gpu"))


# run


def test_shared_runs_run_together_and_a_plain_one_does_not(locks):
    with locks.hold("k", mode="shared"):
        assert holdfast("run", "k", "--shared", "--no-wait", "--", "true").returncode == 0
        assert holdfast("run", "k", "--no-wait", "--", "true").returncode == 75


def test_a_shared_run_is_not_stopped_because_others_come_and_go(locks):
    """Its token is not the newest, and need not be: it is still one of the holders."""
    process = subprocess.Popen([*HOLDFAST, "run", "k", "--shared", "--owner", "run", "--", "sleep", "2.5"])
    with process:
        while not locks.inspect("k"):
            time.sleep(0.01)
        while process.poll() is None:
            with locks.hold("k", mode="shared"):
                time.sleep(0.1)
    assert process.returncode == 0


def test_runs_take_permits(locks):
    with locks.semaphore("gpu", permits=3, take=2):
        assert holdfast("run", "gpu", "--permits", "3", "--no-wait", "--", "true").returncode == 0
        assert holdfast("run", "gpu", "--take", "1", "--no-wait", "--", "true").returncode == 0
        assert holdfast("run", "gpu", "--take", "2", "--no-wait", "--", "true").returncode == 75
        done = holdfast("run", "gpu", "--permits", "4", "--no-wait", "--", "true")
        assert done.returncode == 78
        assert "'gpu' has 3 permits, not 4" in done.stderr
    assert holdfast("run", "gpu", "--permits", "3", "--shared", "--", "true").returncode == 64


def test_a_run_that_is_killed_leaves_its_lock_shut_for_the_delay(locks):
    process = subprocess.Popen(
        [*HOLDFAST, "run", "k", "--ttl", "1", "--lock-delay", "1h", "--", "sleep", "60"],
        stdout=subprocess.DEVNULL,
    )
    with process:
        while not locks.inspect("k"):
            time.sleep(0.01)
        process.kill()
    while not locks.sweep().expired:
        time.sleep(0.05)
    assert locks.try_acquire("k") is None
    assert ["state", "held", "(shut)"] in words(output("show", "k"))
    assert 3500 < locks.inspect("k").expires_in <= 3600


# ls, show, break


def test_ls_marks_what_several_may_hold(locks):
    with (
        locks.hold("plain", owner="a"),
        locks.hold("readers", mode="shared", owner="b"),
        locks.hold("readers", mode="shared", owner="c"),
        locks.semaphore("gpu", permits=4, take=2, owner="d"),
    ):
        _, *rows = output("ls").splitlines()
        shown = json.loads(output("ls", "readers", "--json"))
    states = {row.split("  ")[0]: row for row in rows}
    assert " held (of 4) " in states["gpu"]
    assert " held " in states["plain"]
    assert " held (shared) " in states["readers"]
    assert (shown["mode"], shown["holds"], "holders" in shown) == ("shared", 2, False)


def test_show_names_all_holders_and_the_permits(locks):
    with (
        locks.semaphore("gpu", permits=4, take=2, owner="worker-1") as first,
        locks.semaphore("gpu", permits=4, owner="worker-2") as second,
    ):
        lines = words(output("show", "gpu"))
        data = json.loads(output("show", "gpu", "--json"))
    assert ["state", "held", "(of", "4)"] in lines
    assert ["permits", "4,", "3", "taken"] in lines
    assert ["holders", "2"] in lines
    assert [line[1] for line in lines if line[0] == str(first.token)] == ["worker-1"]
    assert [line[1] for line in lines if line[0] == str(second.token)] == ["worker-2"]
    assert [holder["take"] for holder in data["holders"]] == [2, 1]
    assert ["permits", "4,", "0", "taken"] in words(output("show", "gpu"))


def test_show_tells_why_an_operation_failed(locks):
    with pytest.raises(ZeroDivisionError), locks.operation("pull", "model", owner="worker-7"):
        print(1 / 0)
    assert "ZeroDivisionError: division by zero" in output("show", "pull:model")


def test_break_takes_a_semaphore_from_more_than_are_shown_at_once(locks):
    _leases = [locks.acquire("k", permits=120, owner=f"worker-{n}") for n in range(120)]
    assert output("break", "k", "--reason", "x", "--yes").count("has lost 'k'") == 120
    assert locks.inspect("k").holds == 0


def test_break_takes_a_shared_lock_from_all_or_from_one(locks):
    leases = [locks.acquire("k", mode="shared", owner=name) for name in ("a", "b", "c")]
    text = output("break", "k", "--reason", "x", "--token", str(leases[1].token), "--yes")
    assert text.startswith("b (host ")
    assert output("break", "k", "--reason", "x", "--yes").count("has lost 'k'") == 2
    for lease in leases:
        with pytest.raises(LeaseLost):
            lease.release()


def test_break_says_that_others_still_have_it(locks):
    first = locks.acquire("table", mode="shared", owner="first")
    _second = locks.acquire("table", mode="shared", owner="second")
    told = output("break", "table", "--reason", "stuck", "--token", str(first.token), "--yes")
    assert "first" in told
    assert told.rstrip().endswith("others have it")
    assert output("break", "table", "--reason", "stuck", "--yes").rstrip().endswith("it is free now")


# Locks that stay taken, and results that are kept


def test_a_command_that_was_quick_keeps_the_lock_taken_and_break_opens_it(locks):
    """The process has ended; the store keeps the lock shut."""
    assert output("run", "cleanup", "--no-wait", "--at-least", "1h", "--", "echo", "cleaned") == "cleaned\n"
    again = holdfast("run", "cleanup", "--no-wait", "--at-least", "1h", "--", "echo", "cleaned")
    assert (again.returncode, again.stdout) == (75, "")
    assert "'cleanup' is shut for another 3" in again.stderr
    shown = words(output("show", "cleanup"))
    assert ["state", "held", "(shut)"] in shown
    assert any(line[:7] == ["lease", "is", "over;", "the", "lock", "opens", "in"] for line in shown)
    assert "'cleanup' is open" in output("break", "cleanup", "--reason", "again", "--yes")
    assert output("run", "cleanup", "--no-wait", "--", "echo", "cleaned") == "cleaned\n"


def test_a_kept_result_is_shown_and_thrown_away(locks):
    locks.run_once("fixture:db", lambda: "made", keep=3600, owner="worker-7")
    (line,) = (line for line in words(output("show", "fixture:db")) if line[0] == "result")
    assert " ".join(line[:4]) == "result kept for another"
    assert "worker-7," in line
    assert "what was left of the lease" in output("break", "fixture:db", "--reason", "again", "--yes")
    assert locks.run_once("fixture:db", lambda: "made anew") == "made anew"
