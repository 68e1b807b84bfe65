"""A fleet of engines in virtual time: they join, claim work, do it step by step, pause, die and return.

The real plans, the real keeper and memberships, a real store; everything follows from a seed. Beside the
invariants of locks those of the protocol's Cluster section are checked after every request.
"""

from proof.simulation.cluster.runner import simulate_cluster

__all__ = ["simulate_cluster"]
