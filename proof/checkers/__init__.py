"""Two judges of one history, which share no reasoning: `order` applies rules, `linear` searches an order."""
