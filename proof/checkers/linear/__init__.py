"""The second checker looks for an order of the requests, one after the other, that explains every answer.

lease_model   one lock, as the protocol describes it
traces, slices   from a history to the operations on one key, each between two instants
search        looks for an order; `explanation` tells a person why there is none
"""

from proof.checkers.linear.search import check, search

__all__ = ["check", "search"]
