"""Locks in PostgreSQL, through psycopg 3: ``pip install 'holdfast[postgres]'``."""

from holdfast.stores.postgres.store import PostgresStore, from_engine, from_pool, from_url

__all__ = ["PostgresStore", "from_engine", "from_pool", "from_url"]
