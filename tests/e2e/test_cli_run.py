"""`holdfast run` as it is used: real processes, real signals, a real file."""

import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.e2e.support import HOLDFAST


def run(*args):
    return subprocess.run(
        [*HOLDFAST, "run", *map(str, args)], capture_output=True, text=True, timeout=20, check=False
    )


@contextmanager
def running(*args):
    process = subprocess.Popen(
        [*HOLDFAST, "run", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        try:
            process.communicate(timeout=30)  # not for ever: a command that was not stopped keeps the pipes
        finally:
            process.stdout.close()
            process.stderr.close()


def eventually(condition, timeout=30.0):
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
    return found


def text_of(path):
    """Return what the command wrote into a file, once `run` has told the guardian about the command, too."""
    text = eventually(lambda: path.exists() and path.read_text())
    time.sleep(2)  # a command can be faster than that; the reference names this gap
    return text


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_the_command_runs_under_the_lock_and_finds_its_token(locks):
    done = run(
        "nightly",
        "--owner",
        "me",
        "--",
        "sh",
        "-c",
        f"env; exec {sys.executable} -m holdfast show nightly --json",
    )
    assert done.returncode == 0, done.stderr
    *env, shown = done.stdout.splitlines()
    found = dict(line.split("=", 1) for line in env if line.startswith("HOLDFAST_"))
    lock = json.loads(shown)
    assert found == {
        "HOLDFAST_KEY": "nightly",
        "HOLDFAST_TOKEN": str(lock["token"]),
        "HOLDFAST_OWNER": "me",
        "HOLDFAST_URL": locks.url,
    }
    assert lock["holder"]["owner"] == "me"
    assert locks.inspect("nightly").state == "free"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["no-such-command"], 127),
        (["/etc/passwd"], 126),
    ],
)
def test_the_exit_code_is_that_of_the_command(url, command, code):
    assert run("nightly", "--", *command).returncode == code


def test_options_behind_the_dashes_are_the_commands_own(url):
    done = run("nightly", "--ttl", "5s", "--", "echo", "--ttl", "x", "--", "y")
    assert (done.returncode, done.stdout) == (0, "--ttl x -- y\n")


def test_a_held_lock_is_not_waited_for_with_no_wait(locks):
    with locks.hold("nightly", owner="somebody"):
        done = run("nightly", "--no-wait", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.startswith("holdfast: 'nightly' is held by somebody (host ")
    assert done.stderr.count("\n") == 1


def test_a_held_lock_is_waited_for_no_longer_than_the_timeout(locks):
    with locks.hold("nightly"):
        done = run("nightly", "--timeout", "200ms", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (75, "")
    assert "we were number 1 in the queue" in done.stderr


def test_the_next_run_starts_when_the_first_ends(locks, tmp_path):
    file = tmp_path / "out"
    script = f"echo in >> {file}; sleep 0.2; echo out >> {file}"
    with (
        running("nightly", "--", "sh", "-c", script) as first,
        running("nightly", "--", "sh", "-c", script) as second,
    ):
        assert (first.wait(30), second.wait(30)) == (0, 0)
    assert file.read_text().split() == ["in", "out", "in", "out"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nightly"], "there is no command"),
        (["", "--", "true"], "key '' is empty"),
        (["nightly", "--ttl", "soon", "--", "true"], "'soon' is not a duration"),
        (["nightly", "--grace", "20", "--", "true"], "more than half of the lease"),
        (
            ["k", "--ttl", "5", "echo", "a b"],
            "put -- before the command: holdfast run k --ttl 5 -- echo 'a b'\n",
        ),
        (["k", "git", "log", "--", "x"], "put -- before the command: holdfast run k -- git log -- x\n"),
        (["k", "ls", "--help"], "put -- before the command: holdfast run k -- ls --help\n"),
        (["k", "--odd", "--", "true"], "unrecognized arguments: --odd; try 'holdfast run --help'"),
        (["k", "--ttl", "10ms", "--", "true"], "ttl is 0.01 s, which is too short: use 0.2 s or more"),
        (["k", "--max-hold", "0", "--", "true"], "max-hold is 0 s, which is too short: use 0.2 s or more"),
    ],
)
def test_wrong_usage_is_explained_in_one_line(url, args, message):
    done = run(*args)
    assert done.returncode == 64
    assert done.stderr.startswith("holdfast: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on_and_the_lock_is_released(locks, tmp_path, number):
    ready = tmp_path / "ready"
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo heard; exit 5' {name}; echo x > {ready}; while :; do sleep 0.02; done"
    with running("nightly", "--", "sh", "-c", script) as process:
        text_of(ready)
        process.send_signal(number)
        assert process.wait(30) == 5
        assert process.stdout.read() == "heard\n"
    assert locks.inspect("nightly").state == "free"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_waiting_and_leaves_no_ticket(locks, number):
    with locks.hold("nightly"), running("nightly", "--", "true") as process:
        eventually(lambda: locks.inspect("nightly").waiting)
        process.send_signal(number)
        assert process.wait(30) == 128 + number
        assert process.stderr.read() == ""
        assert locks.inspect("nightly").waiting == 0


def test_a_broken_lock_stops_the_command_and_what_it_started(locks, tmp_path):
    pids = tmp_path / "pids"
    script = f"sleep 60 & echo $$ $! > {pids}; wait"
    with running("nightly", "--", "sh", "-c", script) as process:
        found = text_of(pids).split()
        locks.break_lock("nightly", reason="stuck", by="ops")
        assert process.wait(30) == 76
        assert "is lost: broken by ops (stuck); stopping the command" in process.stderr.read()
    assert not any(is_alive(pid) for pid in found)


def test_a_command_that_does_not_stop_is_killed_after_the_grace(locks, tmp_path):
    pids = tmp_path / "pids"
    script = f"trap '' TERM; echo $$ > {pids}; while :; do sleep 0.02; done"
    with running("nightly", "--grace", "0.2", "--", "sh", "-c", script) as process:
        pid = text_of(pids).strip()
        locks.break_lock("nightly", reason="stuck", by="ops")
        assert process.wait(30) == 76
        assert "did not stop in time, and was killed" in process.stderr.read()
    assert not is_alive(pid)


def test_max_hold_stops_the_command(locks):
    done = run("nightly", "--max-hold", "4", "--", "sleep", "60")
    assert done.returncode == 76
    assert "max-hold is 4 s; stopping the command" in done.stderr
    assert locks.inspect("nightly").state == "free"


def wait_past(end):
    """Wait until shortly after *end*; return for how long the machine stood still meanwhile, at most."""
    longest = 0.0
    while (before := time.time()) < end + 0.3:
        time.sleep(0.01)
        longest = max(longest, time.time() - before - 0.01)
    return longest


def test_without_the_store_the_command_is_dead_before_the_lease_ends(url, tmp_path):
    """The file is locked by another process for longer than the lease: it cannot be renewed."""
    alive = tmp_path / "alive"
    script = f"trap '' TERM; while :; do date +%s.%N > {alive}.new; mv {alive}.new {alive}; done"
    command = ("nightly", "--ttl", "6", "--url", f"{url}?busy_timeout=0.1", "--", "sh", "-c", script)
    with (
        running(*command) as process,
        closing(sqlite3.connect(tmp_path / "locks.db", isolation_level=None)) as other,
    ):
        text_of(alive)
        other.execute("BEGIN IMMEDIATE")
        (end,) = other.execute("SELECT expires_at / 1e6 FROM holdfast_locks").fetchone()
        stood_still = wait_past(end)
        assert process.wait(30) == 76
        errors = process.stderr.read()
        other.execute("ROLLBACK")
    assert "is running out: it could not be renewed; stopping the command" in errors
    assert float(alive.read_text()) < end + stood_still


def test_a_lease_is_renewed_for_as_long_as_the_command_runs(locks):
    done = run("nightly", "--ttl", "4", "--", "sleep", "6")
    assert (done.returncode, done.stderr) == (0, "")


def test_killing_run_itself_stops_the_command_within_the_grace(locks, tmp_path):
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sleep 60 & echo $$ $! > {pids}; wait; sleep 60"
    with running("nightly", "--grace", "0.3", "--", "sh", "-c", script) as process:
        found = text_of(pids).split()
        process.kill()
        eventually(lambda: not any(is_alive(pid) for pid in found))
        assert locks.inspect("nightly").state == "held"


def test_killing_run_while_it_stops_the_command_kills_the_command(locks, tmp_path):
    """The command had its grace already: the guardian must not give it another one."""
    pids, heard = tmp_path / "pids", tmp_path / "heard"
    script = f"trap 'echo x > {heard}' TERM; echo $$ > {pids}; while :; do sleep 0.02; done"
    with running("nightly", "--grace", "10", "--", "sh", "-c", script) as process:
        pid = text_of(pids).strip()
        locks.break_lock("nightly", reason="stuck", by="ops")
        text_of(heard)
        process.kill()
        eventually(lambda: not is_alive(pid), timeout=8)


def test_while_run_itself_is_paused_the_command_is_dead_before_the_lease_ends(url, tmp_path):
    alive = tmp_path / "alive"
    script = f"trap '' TERM; while :; do date +%s.%N > {alive}.new; mv {alive}.new {alive}; done"
    with (
        running("nightly", "--ttl", "6", "--", "sh", "-c", script) as process,
        closing(sqlite3.connect(tmp_path / "locks.db", isolation_level=None)) as other,
    ):
        text_of(alive)
        process.send_signal(signal.SIGSTOP)
        (end,) = other.execute("SELECT expires_at / 1e6 FROM holdfast_locks").fetchone()
        stood_still = wait_past(end)
        last = float(alive.read_text())
        process.send_signal(signal.SIGCONT)
        assert process.wait(30) == 76
    assert last < end + stood_still
    assert float(alive.read_text()) == last


@contextmanager
def terminal(*command):
    """Run a command at a terminal; give a function that types, and one that waits for what is seen."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    seen = b""

    def wait_for(text):
        nonlocal seen
        while text not in seen:
            assert select.select([fd], [], [], 30.0)[0], seen
            seen += os.read(fd, 1000)

    try:
        yield pid, fd, wait_for
    finally:
        os.close(fd)  # hangs up: whoever is left at the terminal is ended by that


def test_a_command_at_a_terminal_can_read_from_it(url):
    """The command has a process group of its own, which the terminal must be handed to, and back."""
    script = f'{sys.executable} -m holdfast run k -- sh -c \'read x; echo "got $x"\'; read y; echo "and $y"'
    with terminal("sh", "-c", script) as (pid, fd, wait_for):
        os.write(fd, b"one\n")
        wait_for(b"got one")
        os.write(fd, b"two\n")
        wait_for(b"and two")
        os.waitpid(pid, 0)


def test_ctrl_c_at_a_terminal_ends_the_command_and_releases(locks):
    # A shell that has not started its next command yet would take the signal for itself, and go on.
    script = "trap 'exit 130' INT; echo ready; while :; do sleep 0.05; done"
    command = (*HOLDFAST, "run", "k", "--", "sh", "-c", script)
    with terminal(*command) as (pid, fd, wait_for):
        wait_for(b"ready")
        os.write(fd, b"\x03")
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert locks.inspect("k").state == "free"


def test_ctrl_z_at_a_terminal_does_not_leave_a_stopped_command_with_the_lock(url):
    script = "read go; echo ready; read x; echo got $x"  # who can read has the terminal
    with terminal(*HOLDFAST, "run", "k", "--", "sh", "-c", script) as (pid, fd, wait_for):
        os.write(fd, b"go\n")
        wait_for(b"ready")
        os.write(fd, b"\x1a")
        wait_for(b"holdfast: a stopped command would keep the lock; continued")
        os.write(fd, b"one\n")
        wait_for(b"got one")
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
