"""Planted flaws, and the check that the tests find each of them."""
