"""Measurements of holdfast beside limits and peers: `python -m bench [section …] [--quick]`."""
