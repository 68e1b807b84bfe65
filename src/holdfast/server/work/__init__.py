"""Instances, and the work that is given to them."""
