"""What the lines came to before hand-overs were made fast, to be shown beside what they come to now.

Another run, so that only ratios compare. `before.json` has by the title of a line: what was measured, and the
ratio where it was beside the same thing. ``python -m bench --keep FILE`` writes such a file.
"""

from __future__ import annotations

import json
from pathlib import Path

_known: dict[str, tuple[str, float | None]] = {
    title: (measured, ratio)
    for title, (measured, ratio) in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")).items()
}
TITLES = tuple(_known)


def measured(title: str) -> tuple[str, float | None] | None:
    """Return the figure and the ratio that the line of that title had; None if there was none."""
    return _known.get(title)


def ratio(title: str) -> float:
    """Return the ratio of a line that there was."""
    found = _known[title][1]
    assert found is not None, f"{title} had no ratio"
    return found
