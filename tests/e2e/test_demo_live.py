"""`make demo`: there is something to see, and nothing is left when it is over."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from holdfast import Holdfast

ENOUGH = 60


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children(pid):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if parent_of(entry.name) == pid:
                    found.append(int(entry.name))
            except OSError:  # it has ended meanwhile
                continue
    return found


def test_it_is_lively_and_ends_with_ctrl_c_leaving_nothing(tmp_path):
    demo = subprocess.Popen(
        [sys.executable, "-m", "examples.demo", "--server", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        url = demo.stdout.readline().split()[-1]
        with Holdfast(url) as locks:
            wanted = {"granted", "queued", "released", "handed_over", "joined", "assigned", "completed"}
            for event in locks.watch("*", after=0, timeout=ENOUGH):
                wanted.discard(event.kind)
                if not wanted:
                    break
        workers = children(demo.pid)
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=ENOUGH)
    finally:
        demo.kill()
        demo.wait()
    assert wanted == set()
    assert demo.returncode == 0
    assert errors.splitlines()[-1] == "holdfast: stopped; workers ended, temporary files removed"
    assert len(workers) >= 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert list(tmp_path.iterdir()) == []
