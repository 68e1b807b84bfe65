"""The curl examples in the documents: each is run as it is printed, and prints what is printed below it.

A console block behind ``<!-- run -->`` is a piece of a session with a server that has just been started:
lines that begin with ``$`` are typed into one bash, the others are what comes back. Only the port is another
one. Numbers and random ids may differ; where the document has ``…``, anything may stand.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.servers.lock_server import LockServer

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "README.zh-CN.md", "docs/reference/http-api.md", "docs/reference/server-events.md"]
PORT = "7373"
BLOCK = re.compile(r"^<!-- run -->\n```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END = "\x1e"  # what bash says behind each command: no answer has it
OLDEST_CURL = (7, 82)  # which knows --json


class Step(NamedTuple):
    command: str
    printed: str


def steps(page: str) -> list[Step]:
    """Return what a page says is typed, and what it says comes back."""
    found: list[Step] = []
    for block in BLOCK.findall((ROOT / page).read_text("utf-8")):
        typing = False
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:], ""))
            elif typing:
                found[-1] = Step(f"{found[-1].command}\n{line}", "")
            else:
                found[-1] = Step(found[-1].command, f"{found[-1].printed}{line}\n")
            typing = (typing or line.startswith("$ ")) and line.endswith("\\")
    return found


def plain(text: str) -> str:
    """Return *text* without what differs from run to run, and without what is only layout.

    How many comments come, which keep a stream alive, depends on the moment.
    """
    text = re.sub(r"^:$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\d+(\.\d+)?e-\d+|\d+\.\d+", "0", text)
    text = re.sub(r"\b[0-9a-f]{12,64}\b", "0", text)
    return re.sub(r"\s+", "", re.sub(r"\d+", "0", text))


def fits(printed: str, came: str) -> bool:
    """Tell whether *came* is what was *printed*."""
    pattern = ".*".join(re.escape(part) for part in plain(printed).split("…"))
    return re.fullmatch(pattern, plain(came), re.DOTALL) is not None


def curl_is_missing() -> str:
    if not shutil.which("curl") or not shutil.which("bash"):
        return "curl and bash"
    told = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = map(int, told.split()[1].split(".")[:2])
    return "" if (major, minor) >= OLDEST_CURL else "curl 7.82 or newer, for --json"


@pytest.mark.parametrize("page", PAGES)
def test_the_curl_examples_work_as_printed(page, tmp_path):
    if missing := curl_is_missing():
        pytest.skip(f"missing: {missing}")
    session = steps(page)
    with LockServer(f"sqlite:///{tmp_path / 'locks.db'}", tmp_path / "log") as server:
        script = "".join(f"{step.command}\nprintf '{END}'\n" for step in session)
        done = subprocess.run(
            ["bash"],
            input=script.replace(PORT, str(server.port)),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    came = done.stdout.split(END)[:-1]
    different = [
        f"$ {step.command}\nprinted:\n{step.printed}\nbut there came:\n{answer}\n"
        for step, answer in zip(session, came, strict=True)
        if not fits(step.printed, answer)
    ]
    assert not different, "\n".join(different)


@pytest.mark.parametrize("page", PAGES)
def test_there_are_curl_examples_to_run(page):
    assert sum("curl" in step.command for step in steps(page)) >= 8


def test_only_numbers_ids_and_layout_may_differ():
    assert fits('{"token": 17,\n "at":"…"}', '{"token":1794781713577012,"at":"x"}')
    assert fits(
        '{"attempt":"6671816d540bfa42402e40c660f6c182"}', '{"attempt":"0000816d540bfa42402e40c660f6ffff"}'
    )
    assert fits("event: hello\n\n:\n", "event: hello\n\n")
    assert not fits('{"answer":"granted"}', '{"answer":"queued"}')
    assert not fits('{"answer":"granted"}', '{"answer":"granted","more":1}')
