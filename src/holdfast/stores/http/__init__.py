"""Locks of a lock server (``holdfast serve``), over HTTP. It takes nothing but the standard library."""

from holdfast.stores.http.store import HTTPStore, from_url

__all__ = ["HTTPStore", "from_url"]
