"""Put the same random requests to two stores, step by step, and expect the same answers and signals.

The memory store is the reference. A store that passes answers as it does, on sequences nobody thought
of. Everything follows from a seed, so a difference can be replayed; nothing waits, because time is
passed in. What the protocol leaves to the store is not compared: the order of the signals of one step, and
the places of events of different keys in the feed.
"""

from holdfast.testing.compare.cluster import ClusterTraffic
from holdfast.testing.compare.comparison import compare
from holdfast.testing.compare.locks import Traffic

__all__ = ["ClusterTraffic", "Traffic", "compare"]
