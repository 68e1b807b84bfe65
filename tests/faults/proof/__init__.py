"""Histories of real processes under faults, and two checkers that judge them: ``make proof``.

    stage ──► fleet of workers (traffic, recorder) ◄── faults (nemesis)
      └─► records: calls, asks, audit, faults, resources ──► order, linear ──► report

`records` is what all of them share. docs/concepts/proof.md explains the method and what it does not prove.
"""
