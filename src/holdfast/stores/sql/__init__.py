"""One store for all SQL databases: statement files, and the protocol's rules over named statements.

A statement has the same name and meaning in every store, and is in that store's own dialect. So the rules (in
`rules`) are written once; what differs is how few round trips a database allows.
"""
