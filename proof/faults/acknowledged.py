"""What clients were told so far, by the files in which they write it down while they run."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proof.histories.records import FENCED


@dataclass
class Acknowledged:
    """The newest token of each key, and all fenced updates. Each line of a file is read once."""

    folder: Path
    tokens: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    updates: set[tuple[str, str]] = field(default_factory=set)  # key and value
    _positions: dict[Path, int] = field(default_factory=lambda: defaultdict(int))
    _asked: dict[tuple[Path, str, int], dict[str, Any]] = field(default_factory=dict)

    def look(self) -> None:
        """Read what was added since the last time."""
        for path in sorted(self.folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._positions[path])
                for line in file:
                    if not line.endswith(b"\n"):  # it is being written
                        break
                    self._positions[path] += len(line)
                    self._note(path, *json.loads(line))

    def _note(self, path: Path, what: str, number: int, fields: dict[str, Any]) -> None:
        if what == "trust":
            return
        asked = self._asked.pop((path, what, number), None)
        if asked is None:
            self._asked[path, what, number] = fields
        elif "outcome" not in fields:  # it says more of the question
            self._asked[path, what, number] = asked | fields
        elif fields["outcome"] == "ok":
            key = asked["key"]
            if what == "ask" and fields["answer"] == "Granted":
                self.tokens[key] = max(self.tokens[key], fields["token"])
            elif what == "call" and asked["kind"] == "update" and key.partition(":")[0] == FENCED:
                self.updates.add((key, fields.get("value") or asked["value"]))
