"""Processes that use locks in every way there is, turn by turn from a seed, and write down what they see."""
