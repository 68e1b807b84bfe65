"""`holdfast every` as it is used: real processes, real signals, a real file."""

import json
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.cli.every import default_name
from tests.e2e.support import HOLDFAST, holdfast

NAMED = ["--name", "job"]
KEY = "every:job"


@contextmanager
def every(*args):
    process = subprocess.Popen(
        [*HOLDFAST, "every", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.terminate()  # not killed: a command that began just now would go on
        try:
            process.communicate(timeout=30)
        finally:
            process.kill()
            process.stdout.close()
            process.stderr.close()


def eventually(condition, timeout=60.0):
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
    return found


def lines_of(path):
    return path.read_text().split() if path.exists() else []


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def next_run(process):
    """Return the next line that says how a run ended."""
    for line in process.stderr:
        if ": the run of " in line:
            return line.strip()
    raise AssertionError("it has ended")


def ended(process):
    """Have it end by a signal, and return what it said."""
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return said


def tick_of(locks):
    return json.loads(locks.work(KEY).data)["tick"]


def test_each_tick_is_run_once_by_one_of_all_nodes(locks, tmp_path):
    ticks = tmp_path / "ticks"
    command = ["1s", "--", "sh", "-c", f"echo $HOLDFAST_TICK >> {ticks}"]
    with every(*command) as one, every(*command) as two, every(*command) as three:
        eventually(lambda: len(lines_of(ticks)) >= 5)
        said = "".join(ended(node) for node in (one, two, three))
    found = lines_of(ticks)
    assert found == sorted(set(found))
    assert said.count("ended with exit code 0") == len(found)


def test_the_command_finds_its_tick_and_its_token(locks, tmp_path):
    file = tmp_path / "env"
    script = f"[ -e {file} ] || {{ env > {file}.new && mv {file}.new {file}; }}; cat; sleep 60"
    with every("500ms", *NAMED, "--timezone", "Asia/Tokyo", "--grace", "0", "--", "sh", "-c", script):
        eventually(file.exists)
        found = dict(line.partition("=")[::2] for line in file.read_text().splitlines())
        lock = locks.inspect(KEY)
    assert found["HOLDFAST_KEY"] == KEY
    assert found["HOLDFAST_TOKEN"] == str(lock.token)
    assert found["HOLDFAST_TICK"].endswith("+09:00")
    assert found["HOLDFAST_URL"] == locks.url


def test_it_goes_on_after_a_run_that_failed_and_each_run_is_one_line(locks):
    with every("500ms", *NAMED, "--", "sh", "-c", "exit 3") as node:
        first, second = next_run(node), next_run(node)
        assert first.startswith(f"holdfast: {KEY!r}: the run of 20")
        assert " ended with exit code 3 after " in first
        assert first != second
        work = locks.work(KEY)
        assert "exit code 3" in work.text or work.state == "assigned"
        assert "has failed" not in ended(node)


def test_a_cron_expression_is_a_schedule(locks):
    with every("*/5 * * * *", *NAMED, "--timezone", "Europe/Berlin", "--", "true") as node:
        eventually(lambda: locks.work(KEY) is not None and locks.work(KEY).state == "offered")
        data = json.loads(locks.work(KEY).data)
        assert (data["schedule"], data["timezone"]) == ("*/5 * * * *", "Europe/Berlin")
        ended(node)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_passed_on_and_the_tick_goes_to_another_node(locks, tmp_path, number):
    started, seen = tmp_path / "started", tmp_path / "seen"
    script = (
        f"trap 'echo {number} >> {seen}; exit 9' {int(number)};"
        f" echo $HOLDFAST_TICK >> {started}; while :; do sleep 0.1; done"
    )
    command = ["1s", *NAMED, "--", "sh", "-c", script]
    with every(*command) as node:
        eventually(lambda: lines_of(started))
        node.send_signal(number)
        _, said = node.communicate(timeout=60)
        assert node.returncode == 0, said
    assert "ended with exit code 9" in said
    assert "it is left to another node" in said
    assert lines_of(seen) == [str(number)]
    with every(*command):
        eventually(lambda: len(lines_of(started)) > 1)
        first, second = lines_of(started)[:2]
    assert second >= first
    assert locks.inspect(KEY).state == "free"


def test_a_run_that_ends_well_after_a_signal_is_done(locks, tmp_path):
    started = tmp_path / "started"
    script = f"trap 'exit 0' TERM; echo $HOLDFAST_TICK >> {started}; while :; do sleep 0.1; done"
    with every("1s", *NAMED, "--", "sh", "-c", script) as node:
        (tick,) = eventually(lambda: lines_of(started))
        said = ended(node)
    assert "ended with exit code 0" in said
    assert "left to another node" not in said
    work = locks.work(KEY)
    assert work.state == "offered"
    assert tick_of(locks) > tick


def test_a_command_that_does_not_heed_a_signal_is_killed(locks, tmp_path):
    started = tmp_path / "started"
    script = f"trap '' TERM; echo $$ >> {started}; while :; do sleep 0.1; done"
    with every("500ms", *NAMED, "--grace", "500ms", "--", "sh", "-c", script) as node:
        (pid,) = eventually(lambda: lines_of(started))
        said = ended(node)
    assert "the command did not stop in time, and was killed" in said
    assert "ended with exit code 137" in said
    assert not is_alive(int(pid))


def test_the_command_is_stopped_when_the_lease_is_lost_and_the_next_tick_is_run(locks, tmp_path):
    started, stopped = tmp_path / "started", tmp_path / "stopped"
    script = f"trap 'echo x >> {stopped}; exit 9' TERM; echo $$ >> {started}; while :; do sleep 0.1; done"
    with every("500ms", *NAMED, "--", "sh", "-c", script) as node:
        eventually(lambda: lines_of(started))
        locks.break_lock(KEY, reason="a test", by="olga")
        assert "was stopped after" in next_run(node)
        assert lines_of(stopped)
        eventually(lambda: len(lines_of(started)) > 1)


def test_a_command_is_stopped_before_at_most_is_over(locks, tmp_path):
    started = tmp_path / "started"
    script = f"echo $$ >> {started}; exec sleep 60"
    with every("500ms", *NAMED, "--at-most", "2s", "--", "sh", "-c", script) as node:
        assert "is run here" in node.stderr.readline()
        assert "is running out: at-most is 2 s; stopping the command" in node.stderr.readline()
        assert "was stopped after" in next_run(node)
        (pid, *_) = lines_of(started)
        assert not is_alive(int(pid))


def test_two_runs_are_at_least_that_far_apart(locks, tmp_path):
    ticks = tmp_path / "ticks"
    script = f"date +%s%N >> {ticks}"
    with every("200ms", *NAMED, "--at-least", "2s", "--", "sh", "-c", script):
        eventually(lambda: len(lines_of(ticks)) >= 3)
    first, second, third, *_ = map(int, lines_of(ticks))
    # The command starts some time after its run has begun, by how much the machine decides.
    assert (third - first) / 1e9 > 2
    assert second > first


def test_the_same_command_has_the_same_name_everywhere():
    assert default_name(["/usr/bin/backup", "--all"]) == default_name(["/usr/bin/backup", "--all"])
    assert default_name(["/usr/bin/backup", "--all"]).startswith("backup-")
    assert default_name(["/usr/bin/backup", "--all"]) != default_name(["/usr/bin/backup", "--al", "l"])


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["*/5 * * * *"], 64, "there is no command"),
        (["*/5", "*", "*", "*", "*", "--", "true"], 64, "quote the schedule"),
        (["5m", "true"], 64, "put -- before the command: holdfast every 5m -- true"),
        (["often", "--", "true"], 64, "'often' is no cron expression"),
        (["5m", "--timezone", "Nowhere/At-All", "--", "true"], 64, "timezone 'Nowhere/At-All' is not known"),
        (["5m", "--missed", "never", "--", "true"], 64, "--missed"),
        (["5m", "--grace", "20", "--", "true"], 64, "more than half of the lease"),
        (["5m", "--at-most", "10ms", "--", "true"], 64, "at-most is 0.01 s, which is too short"),
        (["0", "--", "true"], 64, "schedule is 0 s"),
        (["5m", "--", "no-such-command"], 127, "command not found"),
        (["5m", "--", "/etc/passwd"], 126, "not a program"),
    ],
)
def test_what_cannot_be_run_is_refused_at_once(url, args, code, message):
    done = holdfast("every", *args)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_options_of_the_command_are_its_own(locks, tmp_path):
    file = tmp_path / "out"
    with every("500ms", "--name", "--", "--", "sh", "-c", f'echo "$@" >> {file}', "sh", "--name", "x"):
        pass
    with every("500ms", *NAMED, "--", "sh", "-c", f'echo "$@" >> {file}', "sh", "--name", "--", "x"):
        assert eventually(lambda: lines_of(file))[:3] == ["--name", "--", "x"]
