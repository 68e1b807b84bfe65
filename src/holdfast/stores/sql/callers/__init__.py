"""Requests inside a caller's own transaction, on a connection of a driver that the caller has chosen."""
