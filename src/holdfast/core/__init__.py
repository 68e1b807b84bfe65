"""The protocol as pure code: requests, plans, keeper, keys, backoff, events, settings.

Nothing here waits, reads a clock, rolls dice or knows a driver; a test walks the imports.
"""
