"""The example engine, killed and paused all the time: every effect exactly once, nothing stuck.

Its own verdict is not enough: what is in its tables is counted here as well. And that can fail: the same
engine without its fence, or without its journal, is seen to do things twice.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import pytest

from holdfast import Holdfast, WorkView, keys
from holdfast.stores.sql.options import split_url
from tests.faults.conftest import SERVERS
from tests.faults.processes import eventually, is_stopped
from tests.servers.fixtures import with_tables

EXAMPLE = Path(__file__).parents[2] / "examples" / "workflow_engine"
PATIENCE = 600.0  # until a run counts as stuck; only a machine that is busy with other things gets near it

# HOLDFAST_WORKFLOWS=2000 is what is promised, and takes two idle cores about a minute on each server. By
# default there are fewer, which take their time and little of the processors': engines are killed as often.
WORKFLOWS = int(os.environ.get("HOLDFAST_WORKFLOWS", "100"))
WORK = 0.2 if WORKFLOWS < 1000 else 0.0  # seconds that a step takes
STEPS = 7  # five nodes, one of which is a loop of three

VERDICT = re.compile(
    r"^(?P<verdict>.*): (?P<workflows>\d+) workflows, (?P<effects>\d+) effects, .* s;"
    r" (?P<kills>\d+) engines killed, (?P<pauses>\d+) paused;"
    r" (?P<taken_over>\d+) times .*, (?P<refused>\d+) times",
    re.MULTILINE,
)


@dataclass
class Outcome:
    """What the command said."""

    code: int
    text: str

    def __getitem__(self, name: str) -> int:
        return int(self._said(name))

    @property
    def verdict(self) -> str:
        return self._said("verdict")

    def _said(self, name: str) -> str:
        found = VERDICT.search(self.text)
        assert found, self.text
        return found[name]


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest) -> str:
    """The address of a database of its own, with holdfast's tables."""
    return with_tables(request.getfixturevalue(f"{request.param}_url"))


@contextmanager
def started(program: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Start a program, and leave neither it nor what it has started behind."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        print(f"{arguments}:", *process.communicate())  # pytest shows it if the test fails


def run(url: str, *options: object) -> Outcome:
    """Run the example as a user would."""
    with started(EXAMPLE, url, *options) as process:
        text, _ = process.communicate(timeout=PATIENCE)
        return Outcome(process.returncode, text)


def look(url: str, question: str) -> list[tuple[Any, ...]]:
    """Ask the database of an engine something, with nothing of the engine's."""
    parts = urlsplit(url)
    if parts.scheme == "postgresql":
        import psycopg

        with psycopg.connect(split_url(url)[0]) as connection:
            return connection.execute(question.encode()).fetchall()
    import pymysql

    with pymysql.connect(
        host=parts.hostname, port=parts.port or 0, user=parts.username, database=parts.path[1:]
    ) as connection:
        cursor = connection.cursor()
        cursor.execute(question)
        return list(cursor.fetchall())


def test_every_effect_happens_exactly_once_whoever_is_killed_or_paused(url: str, tmp_path: Path) -> None:
    """8 engines: one is killed every 2 s, one paused past its lease every 4 s, some at the worst moment."""
    picture = tmp_path / "timeline.svg"
    trouble = ("--kill-every", 2, "--pause-every", 4, "--stumble", 0.0005)
    load = ("--engines", 8, "--capacity", 4, "--workflows", WORKFLOWS, "--work", WORK, "--printers", 64)
    timing = ("--ttl", 3, "--heartbeat", 1, "--timeout", PATIENCE - 60)
    outcome = run(url, *load, *trouble, *timing, "--picture", picture)
    assert outcome.verdict == "every effect exactly once", outcome.text
    assert outcome.code == 0
    assert outcome["workflows"] == WORKFLOWS
    assert outcome["effects"] == WORKFLOWS * STEPS
    assert outcome["kills"] > 0
    assert outcome["pauses"] > 0
    assert outcome["taken_over"] > 0
    counted = look(url, "SELECT count(*), count(DISTINCT step), count(DISTINCT workflow) FROM engine_steps")
    assert counted == [(WORKFLOWS * STEPS, WORKFLOWS * STEPS, WORKFLOWS)]
    assert look(url, "SELECT sum(reserved), sum(packed), sum(notified) FROM engine_accounts") == [
        (WORKFLOWS, 3 * WORKFLOWS, WORKFLOWS)
    ]
    assert look(url, "SELECT sum(labels) FROM engine_printers") == [(WORKFLOWS,)]
    # Nobody who had lost a workflow wrote anything after the next one had begun to.
    pair = "engine_steps early JOIN engine_steps late ON early.workflow = late.workflow"
    overtaken = "early.token < late.token AND early.ended_at > late.ended_at"
    assert look(url, f"SELECT early.step, late.step FROM {pair} WHERE {overtaken}") == []
    assert lanes(picture) == [f"engine-{n}" for n in range(1, 9)]


def lanes(picture: Path) -> list[str]:
    """Return the names of the lanes in a picture, which has to be XML to be read at all."""
    texts = ET.parse(picture).iter("{http://www.w3.org/2000/svg}text")
    return [text.text for text in texts if text.text and text.text.startswith("engine-")]


class Stage:
    """One workflow, and engines that are started by hand."""

    WORKFLOW = keys.workflow("17")
    ORDER: ClassVar = {"customer": 0, "items": ["cup", "plate", "spoon"], "price": 1, "printer": 0}

    def __init__(self, url: str, engines: ExitStack) -> None:
        self.url = url
        self.locks = engines.enter_context(Holdfast(url))
        self._engines = engines
        tables = f"import database as d; d.make_tables(d.Database({url!r}), customers=1, printers=1)"
        subprocess.run([sys.executable, "-c", tables], cwd=EXAMPLE, check=True)
        self.locks.offer({self.WORKFLOW: self.ORDER})

    def start(self, name: str, *options: object) -> subprocess.Popen[str]:
        engine = started(EXAMPLE / "engine.py", self.url, "--name", name, "--capacity", 1, *options)
        return self._engines.enter_context(engine)

    def done(self) -> dict[str, int]:
        """Return how many steps each engine has recorded."""
        return dict(look(self.url, "SELECT engine, count(*) FROM engine_steps GROUP BY engine"))

    def doubled(self) -> list[str]:
        """Return the steps that are recorded more than once."""
        return [
            step
            for (step,) in look(self.url, "SELECT step FROM engine_steps GROUP BY step HAVING count(*) > 1")
        ]

    def work(self) -> WorkView:
        work = self.locks.work(self.WORKFLOW)
        assert work is not None
        return work

    def until_completed(self) -> WorkView:
        eventually(lambda: self.work().state == "completed")
        return self.work()

    def until_dead(self, name: str) -> None:
        """Wait until an engine counts as dead, and so its lease has ended as well."""
        eventually(lambda: [each.name for each in self.locks.instances() if each.state == "dead"] == [name])


@pytest.fixture
def stage(url: str) -> Iterator[Stage]:
    with ExitStack() as engines:
        yield Stage(url, engines)


SHORT = ("--ttl", 1, "--heartbeat", 0.3)
LONG = ("--ttl", 60, "--heartbeat", 0.3)  # nobody takes it over, whatever the machine does meanwhile


def test_who_takes_over_goes_on_behind_the_last_recorded_step(stage: Stage) -> None:
    first = stage.start("first", *SHORT, "--work", 1)
    eventually(lambda: stage.done().get("first", 0) >= 2)
    first.kill()
    first.wait()
    before = stage.done()["first"]
    assert before < STEPS
    tries = stage.work().tries  # one, or more if it was too slow to renew
    stage.start("second", *LONG, "--work", 0)
    assert stage.until_completed().tries == tries + 1
    assert stage.done() == {"first": before, "second": STEPS - before}
    assert stage.doubled() == []


def test_without_the_journal_that_would_be_seen(stage: Stage) -> None:
    """Take away what the test above defends, and it fails."""
    first = stage.start("first", *SHORT, "--work", 1)
    eventually(lambda: stage.done().get("first", 0) >= 2)
    first.kill()
    stage.start("second", *SHORT, "--work", 0, "--unchecked")
    stage.until_completed()
    assert len(stage.doubled()) >= 2


def test_an_engine_that_is_paused_in_the_middle_of_an_effect_may_end_it_and_no_more(stage: Stage) -> None:
    """Nobody takes over before that transaction ends, though its lease has ended long ago."""
    first = stage.start("first", *SHORT, "--work", 0, "--stumble", 1)
    eventually(lambda: is_stopped(first.pid))
    stage.start("second", *SHORT, "--work", 0)
    stage.until_dead("first")
    first.terminate()  # so that it does not join again, to be the one who takes over
    first.send_signal(signal.SIGCONT)
    assert stage.until_completed().result == {"engine": "second"}
    assert stage.done() == {"first": 1, "second": STEPS - 1}
    assert stage.doubled() == []


def test_without_the_fence_that_would_be_seen(stage: Stage) -> None:
    """Take away what the test above defends, and it fails."""
    first = stage.start("first", *SHORT, "--work", 0, "--stumble", 1, "--unfenced")
    eventually(lambda: is_stopped(first.pid))
    stage.start("second", *SHORT, "--work", 0)
    stage.until_completed()
    first.send_signal(signal.SIGCONT)
    eventually(stage.doubled)
    assert stage.done() == {"first": 1, "second": STEPS}


def test_a_terminated_engine_gives_its_work_back_at_once(stage: Stage) -> None:
    """The ttl is ten minutes: nobody could wait for it to end."""
    slow = ("--ttl", 600, "--heartbeat", 60, "--drain", 0)
    first = stage.start("first", *slow, "--work", 0.5)
    eventually(stage.done)
    first.terminate()
    text, _ = first.communicate(timeout=PATIENCE)
    assert first.returncode == 0, text
    before = stage.done()["first"]
    stage.start("second", *slow, "--work", 0)
    work = stage.until_completed()
    assert work.result == {"engine": "second"}
    assert work.tries == 1  # what was given back was not tried
    assert stage.done() == {"first": before, "second": STEPS - before}
    assert stage.doubled() == []


def test_it_runs_on_a_file_too(tmp_path: Path) -> None:
    picture = tmp_path / "timeline.svg"
    options = ("--engines", 3, "--workflows", 12, "--work", 0.1, "--kill-every", 1, "--picture", picture)
    outcome = run(f"sqlite:///{tmp_path}/engine.db", *options)
    assert outcome.verdict == "every effect exactly once", outcome.text
    assert outcome["effects"] == 12 * STEPS
    assert lanes(picture) == ["engine-1", "engine-2", "engine-3"]
