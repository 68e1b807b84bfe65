"""Locks that hold across threads, processes and machines, kept in the database you already have."""

__version__ = "0.1.0"
