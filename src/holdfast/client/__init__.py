"""The client: what `Holdfast` and `AsyncHoldfast` are made of."""
