"""The demo, once without and once with a terminal, at the same time; and how it ends when interrupted."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from examples.demo.cast import NAMES
from examples.demo.checks import LATE, Evidence, judge
from examples.demo.record import Record, Turn
from examples.demo.screen import ENTER, LEAVE, frame, render
from examples.demo.timeline import ASCII, Glyphs, glyphs_for, strips
from examples.demo.worker import TTL
from holdfast.cli.output import width_of
from holdfast.core.events import Event
from tests.shared import once

DEMO = [sys.executable, "-m", "examples.demo"]
CHECKS = 8


@dataclass
class Terminal:
    """A demo at a terminal of 80 by 24."""

    pid: int
    fd: int
    seen: bytes = b""

    def read_until(self, wanted, timeout):
        end = time.monotonic() + timeout
        while wanted not in self.seen:
            assert time.monotonic() < end, self.seen[-2000:]
            self._read()

    def read_all(self):
        while self._read():
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self):
        try:
            chunk = os.read(self.fd, 65536)
        except OSError:  # the other end is closed
            chunk = b""
        self.seen += chunk
        return chunk


def demo_at_terminal(folder):
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", TMPDIR=str(folder), PYTHONIOENCODING="utf-8")
        os.environ.pop("NO_COLOR", None)
        while os.get_terminal_size(0) != (80, 24):  # until the size is set
            time.sleep(0.01)
        os.execv(sys.executable, DEMO)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    return Terminal(pid, fd)


@dataclass
class Shows:
    plain: str
    plain_code: int
    drawn: str
    drawn_code: int
    left: list[Path]


@pytest.fixture(scope="module")
def shows(tmp_path_factory):
    return once(tmp_path_factory, "shows", play)


def play():
    with tempfile.TemporaryDirectory(dir=tempfile.gettempdir()) as name:
        folder = Path(name)
        plain = subprocess.Popen(
            DEMO,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": name, "PYTHONIOENCODING": "ascii"},
            text=True,
        )
        texts = []
        reader = threading.Thread(target=lambda: texts.append(plain.communicate()[0]))
        reader.start()
        terminal = demo_at_terminal(folder)
        code = terminal.read_all()
        reader.join()
        return Shows(texts[0], plain.returncode, terminal.seen.decode(), code, list(folder.iterdir()))


def test_without_a_terminal_it_is_written_line_by_line(shows):
    assert shows.plain_code == 0, shows.plain
    assert shows.plain.isascii()
    assert "\x1b" not in shows.plain
    assert re.search(r"^ +\d+\.\d\d s  act 2: the holder is killed$", shows.plain, re.MULTILINE)
    assert re.search(r"^ +\d+\.\d\d s  cleo  killed with SIGKILL$", shows.plain, re.MULTILINE)
    assert re.search(r"^ +\d+\.\d\d s  dan   release\(\) is refused: LeaseLost, ", shows.plain, re.MULTILINE)


@pytest.mark.parametrize(("how", "mark"), [("plain", " ok "), ("drawn", "✓")])
def test_all_its_checks_hold(shows, how, mark):
    text = getattr(shows, how)
    assert getattr(shows, f"{how}_code") == 0, text
    assert text.count(mark) == CHECKS
    assert f"all {CHECKS} checks hold" in text


def test_at_a_terminal_it_draws_every_act_on_another_screen_and_restores_the_first(shows):
    before, rest = shows.drawn.split(ENTER)
    drawn, after = rest.split(LEAVE)
    assert before == ""
    for act in (1, 2, 3):
        assert f"act {act} of 3" in drawn
    assert drawn.count("\x1b[H") > 50
    assert "✓" not in drawn
    assert "✓" in after
    assert "\x1b[?25l" not in after


def test_it_leaves_nothing_behind(shows):
    assert shows.left == []


def test_ctrl_c_ends_it_and_restores_the_terminal(tmp_path):
    terminal = demo_at_terminal(tmp_path)
    terminal.read_until(b"act 1 of 3", timeout=10)
    pids = [int(pid) for pid in re.findall(rb"\x1b\[2m +(\d+)\x1b\[0m", terminal.seen)][-len(NAMES) :]
    os.write(terminal.fd, b"\x03")
    assert terminal.read_all() == 130
    after = terminal.seen.decode().split(LEAVE)[1]
    assert after == "holdfast: stopped; workers ended, temporary files removed\r\n"
    assert len(set(pids)) == len(NAMES)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert list(tmp_path.iterdir()) == []


# The checks themselves: each must be able to fail.


def honest():
    """The record of a small show in which all went well."""
    record = Record(planned=4)
    record.turns = [
        Turn("ada", 0.0, granted=0.0, token=10, ended=0.5, how="left"),
        Turn("cleo", 0.1, granted=0.6, token=11, ended=0.9, how="killed", lapsed=2.6),
        Turn("dan", 0.2, granted=2.6, token=12, ended=2.9, how="paused", lapsed=4.6, back=5.0),
        Turn("eve", 0.3, granted=4.6, token=13, ended=5.2, how="left"),
    ]
    record.refusals = [("dan", "check", "expired"), ("dan", "release", "expired")]
    kinds = [
        ("granted", 10, "ada"),
        ("queued", 10, "cleo"),
        ("queued", 10, "dan"),
        ("queued", 10, "eve"),
        ("released", 10, "ada"),
        ("handed_over", 11, "cleo"),
        ("expired", 11, "cleo"),
        ("handed_over", 12, "dan"),
        ("expired", 12, "dan"),
        ("handed_over", 13, "eve"),
        ("released", 13, "eve"),
    ]
    history = [Event("demo", n, kind, float(n), token, owner) for n, (kind, token, owner) in enumerate(kinds)]
    return Evidence(record, history, counter=2)


def test_turns_that_were_not_completed_are_not_counted_as_such():
    verdict = judge(honest())[0]
    assert (verdict.claim, verdict.numbers) == (
        "every turn was granted",
        "4 of 4; 2 completed, 1 killed, 1 paused",
    )


def failed(evidence):
    return [verdict.claim for verdict in judge(evidence) if not verdict.holds]


def test_an_honest_show_passes_all_checks():
    assert failed(honest()) == []


def test_each_check_can_fail():
    evidence = honest()
    assert failed(replace(evidence, counter=1)) == ["no update was lost"]
    evidence.record.planned = 5
    assert failed(evidence) == ["every turn was granted"]

    evidence = honest()
    evidence.record.turns[1].token, evidence.record.turns[2].token = 12, 11
    assert "tokens only grow" in failed(evidence)

    evidence = honest()
    assert "never two holders in the store" in failed(
        replace(evidence, history=[event for event in evidence.history if event.kind != "expired"])
    )

    evidence = honest()
    evidence.record.turns[0].ended = 0.61
    assert failed(evidence) == ["never two at work at once"]

    evidence = honest()
    evidence.history[1], evidence.history[2] = evidence.history[2], evidence.history[1]
    assert failed(evidence) == ["first come, first served"]

    evidence = honest()
    late = TTL + LATE + 0.01 - (2.6 - 0.9)
    for turn in evidence.record.turns[2:]:
        turn.granted += late
        turn.ended += late
    assert failed(evidence) == ["killed: taken over in time"]

    evidence = honest()
    evidence.record.refusals.pop()
    assert failed(evidence) == ["paused: refused when back"]


# The picture.


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 10), (20, 3)])
def test_a_frame_fits_into_any_terminal(width, height):
    record = honest().record
    record.begin_act("a title", "an explanation that is long enough to be cut in a narrow terminal " * 2)
    for number in range(50):
        record.say("ada", f"line {number} " * 10)
    pids = dict.fromkeys(NAMES, 1234567)
    lines = frame(record, None, pids, now=5.5, width=width, height=height, glyphs=Glyphs())
    assert len(lines) <= height
    assert all(width_of(render(line, width, colours=False)) <= width for line in lines)


@pytest.mark.parametrize("columns", [10, 13, 52, 72, 500])
def test_a_column_of_the_timeline_has_one_holder(columns):
    rows = strips(honest().record, begin=0.0, end=5.2, now=5.2, columns=columns, glyphs=Glyphs())
    texts = ["".join(text for text, _ in row) for row in rows.values()]
    assert [len(text) for text in texts] == [columns] * len(NAMES)
    for cells in zip(*texts, strict=True):
        assert sum(cell in "█░✗‖" for cell in cells) <= 1, texts
    drawn = "".join(texts)
    assert [drawn.count(mark) for mark in "✗‖!"] == [1, 1, 1]


def test_the_one_who_held_longest_gets_the_column():
    record = Record()
    record.turns = [
        Turn("ada", 0.0, granted=0.0, token=1, ended=1.3, how="left"),
        Turn("ben", 0.0, granted=1.3, token=2),
    ]
    rows = strips(record, begin=0.0, end=3.0, now=2.5, columns=3, glyphs=ASCII)
    assert "".join(text for text, _ in rows["ada"]) == "#  "
    assert "".join(text for text, _ in rows["ben"]) == ".##"


def test_a_stream_that_cannot_show_blocks_gets_plain_letters():
    assert glyphs_for("ascii") == ASCII
    assert glyphs_for("utf-8") == Glyphs()
    text = "".join(
        render(line, 80, colours=False)
        for line in frame(
            honest().record, None, dict.fromkeys(NAMES, 1), now=5.5, width=80, height=24, glyphs=ASCII
        )
    )
    assert text.isascii()
