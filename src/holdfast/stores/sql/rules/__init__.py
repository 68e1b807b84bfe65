"""The rules of the protocol, once for all SQL stores, over named statements."""
