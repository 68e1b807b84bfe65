"""What a run leaves: calls, requests, the triggers' audit and faults, as lines that checkers read."""
