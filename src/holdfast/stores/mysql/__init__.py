"""Locks in MySQL 8 and MariaDB, through PyMySQL: ``pip install 'holdfast[mysql]'``."""

from holdfast.stores.mysql.store import MySQLStore, from_engine, from_url

__all__ = ["MySQLStore", "from_engine", "from_url"]
