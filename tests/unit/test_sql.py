"""SQL in files: named statements, and numbered schema versions."""

import sys
from pathlib import Path

import pytest

from holdfast.stores.sql.files import Statements, schema_versions

STATEMENTS = """\
-- A comment before everything.

-- name: first
-- What it is for.
SELECT 1
  -- an indented comment
  FROM t;

-- name: second_one
SELECT '-- name: no_statement'
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "some_store"
    (folder / "schema").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "statements.sql").write_text(STATEMENTS)
    (folder / "schema" / "010_later.sql").write_text("ten")
    (folder / "schema" / "002_more.sql").write_text("two")
    (folder / "schema" / "001_start.sql").write_text("one")
    (folder / "schema" / "README.md").write_text("not a step")
    (folder / "schema" / "3_wrong.sql").write_text("not a step")
    monkeypatch.syspath_prepend(tmp_path)
    yield "some_store"
    sys.modules.pop("some_store", None)


def test_statements_are_attributes_without_comments_and_semicolon(package):
    assert Statements(package).first == "SELECT 1\n  FROM t"


def test_a_name_inside_a_statement_is_none(package):
    statements = Statements(package)
    assert statements.second_one == "SELECT '-- name: no_statement'"
    assert [name for name, _ in statements] == ["first", "second_one"]


def test_a_statement_that_is_not_there_is_named(package):
    with pytest.raises(AttributeError, match="no statement is named 'third'"):
        _ = Statements(package).third


def test_schema_versions_are_in_the_order_of_their_numbers(package):
    assert schema_versions(package) == [(1, "one"), (2, "two"), (10, "ten")]
