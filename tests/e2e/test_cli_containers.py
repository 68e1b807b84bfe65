"""The command line as process 1 of a container: a PID namespace of its own, as container engines make it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.cli import orphans
from tests.e2e.support import HOLDFAST

CONTAINED = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *HOLDFAST]

# Waits until nothing is dead and unreaped.
NO_ZOMBIES = """
import pathlib, sys, time
end = time.monotonic() + 60
while True:
    dead = []
    for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            dead += [file] if file.read_text().rpartition(")")[2].split()[0] == "Z" else []
        except OSError:
            pass
    if not dead or time.monotonic() > end:
        break
    time.sleep(0.05)
print("dead:", len(dead))
"""
ORPHANS = "for n in 1 2 3 4 5 6 7 8 9 10; do (sh -c 'exit 3' &); done"


@pytest.fixture
def contained(url):
    if shutil.which("unshare") is None:
        pytest.skip("missing: unshare")
    tried = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"missing: the right to make a PID namespace ({tried.stderr.strip()})")

    def run(*args):
        return subprocess.run([*CONTAINED, *args], capture_output=True, text=True, timeout=120, check=False)

    return run


def test_as_process_1_run_reaps_orphans_and_keeps_the_commands_exit_code(contained):
    script = f"{ORPHANS}; sleep 0.3; {sys.executable} -c '{NO_ZOMBIES}'; exit 7"
    done = contained("run", "nightly", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (7, "dead: 0\n", "")


def test_as_process_1_run_knows_which_signal_ended_its_command(contained):
    done = contained("run", "nightly", "--", "sh", "-c", f"{ORPHANS}; kill -KILL $$")
    assert (done.returncode, done.stderr) == (137, "")


def state_of(process):
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def dead(process):
    end = time.monotonic() + 60
    while state_of(process) != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)
    return process


def test_what_somebody_waits_for_is_not_reaped_by_another():
    ours = dead(orphans.start(["sh", "-c", "exit 7"]))
    stray = dead(subprocess.Popen(["sh", "-c", "exit 3"]))
    orphans.reap()
    assert not os.path.exists(f"/proc/{stray.pid}")
    assert os.waitstatus_to_exitcode(os.waitpid(ours.pid, 0)[1]) == 7
    ours.returncode = stray.returncode = 0  # so that nobody waits for them
    orphans.forget(ours.pid)


def test_a_number_that_was_forgotten_is_reaped():
    stray = dead(orphans.start(["true"]))
    orphans.forget(stray.pid)
    orphans.reap()
    assert not os.path.exists(f"/proc/{stray.pid}")
    stray.returncode = 0


def test_as_process_1_every_reaps_between_runs_and_ends_by_sigterm(contained, locks, tmp_path):
    """What a run has left behind dies later, when no command of ours runs."""
    file = tmp_path / "started"
    script = f"(sh -c 'sleep 1; exit 3' &); echo x >> {file}"
    node = subprocess.Popen(
        [*CONTAINED, "every", "200ms", "--at-least", "1h", "--", "sh", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "is run here" in node.stderr.readline()
        assert "ended with exit code 0" in node.stderr.readline()
        (init,) = children_of(node.pid)
        eventually(lambda: [command_of(pid) for pid in children_of(init)] == [])
        os.kill(init, signal.SIGTERM)
        assert node.wait(60) == 0
    finally:
        node.kill()
        node.communicate()


def test_as_process_1_every_ends_its_command_by_sigterm(contained, locks, tmp_path):
    file = tmp_path / "started"
    node = subprocess.Popen(
        [*CONTAINED, "every", "200ms", "--", "sh", "-c", f"echo x >> {file}; exec sleep 600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(file.exists)
        (init,) = children_of(node.pid)
        os.kill(init, signal.SIGTERM)
        _, said = node.communicate(timeout=60)
        assert node.returncode == 0
        assert "ended with exit code 143" in said
    finally:
        node.kill()
        node.communicate()


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except FileNotFoundError:
        return ""


def eventually(condition, timeout=60.0):
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
    return found
