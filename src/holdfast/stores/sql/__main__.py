"""Prints a statement as a database is sent it: ``python -m holdfast.stores.sql postgres acquire``."""

from __future__ import annotations

import sys

from holdfast.stores.sql.files import SHARED, Statements

database, name = sys.argv[1:]
print(f"{Statements(SHARED, f'holdfast.stores.{database}')[name]};")
