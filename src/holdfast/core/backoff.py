"""How long to wait before asking a failing store again: exponential, with full jitter above a floor."""

from __future__ import annotations

from holdfast.core.data import data


@data
class Backoff:
    """The delay doubles from *first* to *most*, and a dice roll spreads it, so that a fleet does not
    come back to a recovering database all at once.
    """

    first: float = 0.05
    most: float = 2.0

    def delay(self, failures: int, roll: float) -> float:
        """Return the seconds to wait after so many *failures* (1, 2, …); *roll* is in [0, 1)."""
        ceiling = min(self.most, self.first * 2.0 ** min(failures - 1, 30))
        return ceiling * (0.5 + roll / 2)
