"""Locks: what changes them, who looks at them, and those for whom the server waits."""
