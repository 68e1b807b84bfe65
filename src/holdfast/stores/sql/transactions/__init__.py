"""How rules are run on a database: short transactions, batches, and what happens after a commit."""
