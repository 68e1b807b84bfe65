"""Everything that a few clients can do with a few locks: the real plans, keeper and reference store.

Where the simulation walks at random and far, this goes everywhere, and only so far: every order of moves,
every fault at every place, within bounds; each state once. After every request the invariants of the protocol
page are checked. ``python -m proof.explorer --help`` runs it.
"""

from proof.explorer.bounds import FAULTS, FEW_FAULTS, Bounds, Fault
from proof.explorer.search import CounterExample, Report, explore

__all__ = ["FAULTS", "FEW_FAULTS", "Bounds", "CounterExample", "Fault", "Report", "explore"]
