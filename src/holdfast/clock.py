"""The local clock: monotonic, and counting the time a machine is suspended.

A lease runs on in the store while a laptop sleeps, so the clock that decides how long to trust it must
run on too. `time.monotonic()` stands still there on Linux.
"""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):
    _BOOT = time.CLOCK_BOOTTIME

    def boot_time() -> float:
        """Return seconds since some fixed moment."""
        return time.clock_gettime(_BOOT)

else:  # macOS counts suspend in its monotonic clock; Windows has no better one
    boot_time = time.monotonic
