"""A whole fleet in one thread and virtual time: the real plans, the real keeper, a real store.

Everything follows from a seed: what clients want, how fast their clocks run, when they stop or die, and
what the network does to each request. After every request that a store executes, the invariants of the
protocol page are checked. ``python -m proof.simulation --help`` runs it.
"""

from proof.simulation.invariants import Checker
from proof.simulation.runner import Report, SimulationFailed, simulate
from proof.simulation.step import Step, Violation

__all__ = ["Checker", "Report", "SimulationFailed", "Step", "Violation", "simulate"]
