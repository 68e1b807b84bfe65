"""Functions that are run once a tick by one of many nodes: what `Holdfast.every` makes.

`calendar` says when ticks are, `ticking` what to ask the store for and when, as a plan that never waits;
`threads` and `tasks` wait, and run the functions. See Cluster in the protocol: a schedule is one piece of
work that recurs.
"""
