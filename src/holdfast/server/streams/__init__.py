"""What stays open: waiting acquires, events and signals, as server-sent events."""
