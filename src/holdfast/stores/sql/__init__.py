"""What the SQL stores share: statement files, and the protocol's rules over named statements.

A statement has the same name and meaning in every store, and each store's own dialect for it. So the rules
(`deciding`, `settling`, `operations`, over what is in `row`) are written once; what differs is how few round
trips a database allows.
"""

from holdfast.stores.sql.files import Statements, schema_versions

__all__ = ["Statements", "schema_versions"]
