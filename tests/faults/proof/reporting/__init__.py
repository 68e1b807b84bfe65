"""What a run looks like: figures are counted here, drawn, and put on one page that needs nothing else.

    records ──► leases, unknowns, latencies ──► figures ──► page (picture, closeup, tables), terminal, index

`tests.faults.proof.report` is the way in. ``python -m tests.faults.proof.reporting.example`` writes the page
of a made-up history, for whoever works on how it looks.
"""
