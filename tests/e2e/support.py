"""Running the command line as users do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

HOLDFAST = [sys.executable, "-m", "holdfast"]


def holdfast(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HOLDFAST, *args], capture_output=True, text=True, timeout=20, check=False, **options
    )


def output(*args: str) -> str:
    done = holdfast(*args)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
