"""Stops a client in the moment that matters most: while it holds a lease, or has read and not yet written.

Most leases are short, so a client that is stopped at any moment mostly has none, and nothing comes of it.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proof.histories.records import CALLS

if TYPE_CHECKING:
    from proof.faults.scene import Scene
    from proof.traffic.fleet import Process

TAKES = ("acquire", "try", "reenter")
MOMENTS = {"any": 30, "lease": 35, "update": 35}  # how many of a hundred are stopped when
TAIL = 16384  # bytes: a lease that was taken before that is nearly over
PATIENCE = 0.6  # seconds to wait for such a moment
MOMENT = 0.01  # seconds between two tries


def stop(scene: Scene, process: Process, dice: random.Random) -> str:
    """Stop a client, mostly with a lease in its hands; return what it had, for the record."""
    wanted = dice.choices(list(MOMENTS), list(MOMENTS.values()))[0]
    path = scene.stage.folder / CALLS / f"{process.name}.jsonl"
    deadline = time.monotonic() + (0 if wanted == "any" else PATIENCE)
    while True:
        process.pause()
        # It is stopped: that is all that it has written, and it stays so.
        held, updated = held_by(path), updated_by(path)
        if (updated if wanted == "update" else held) or time.monotonic() > deadline:
            had = f"it held {', '.join(sorted(held))}" if held else ""
            return f"{had} and was updating {', '.join(sorted(updated))}" if updated else had
        process.go_on()
        time.sleep(MOMENT)


def updated_by(path: Path) -> set[str]:
    """Return the keys of resources that a process is about to update."""
    asked: dict[int, str] = {}
    for line in _tail(path):
        what, number, fields = json.loads(line)
        if what == "call":
            if fields.get("kind") == "update":
                asked[number] = fields["key"]
            else:
                asked.pop(number, None)
    return set(asked.values())


def held_by(path: Path) -> set[str]:
    """Return the keys of leases that a process was granted and has not begun to give back."""
    asked: dict[int, dict[str, Any]] = {}
    held: dict[str, str] = {}  # owner → key; each turn has an owner of its own
    for line in _tail(path):
        what, number, fields = json.loads(line)
        if what == "trust":
            held.pop(fields["owner"], None)  # its turn is over
        elif what == "call" and "kind" in fields:
            asked[number] = fields
            if fields["kind"] == "release":
                held.pop(fields["owner"], None)
        elif what == "call" and number in asked and "outcome" not in fields:
            asked[number] |= fields  # now it is known whose it is
        elif what == "call" and number in asked:
            call = asked.pop(number)
            if call["kind"] in TAKES and fields["outcome"] == "ok":
                held[call["owner"]] = call["key"]
    return set(held.values())


def _tail(path: Path) -> list[bytes]:
    """Return the last whole lines of a file."""
    try:
        with path.open("rb") as file:
            begin = max(0, path.stat().st_size - TAIL)
            file.seek(begin)
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    return lines[1 if begin else 0 : -1]
