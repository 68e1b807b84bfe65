"""Locks in the memory of this process: the reference that every other store is compared with."""

from holdfast.stores.memory.store import MemoryStore, from_url

__all__ = ["MemoryStore", "from_url"]
