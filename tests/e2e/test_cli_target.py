"""Which store a command works on, and what it says when that is not a useful one."""

import subprocess
import sys

import pytest

from holdfast import Holdfast
from holdfast.cli.target import absolute, shown

HOLDFAST = [sys.executable, "-m", "holdfast"]


@pytest.fixture
def holdfast(tmp_path, monkeypatch):
    """Run a command in a folder of its own, with no store named and no default file yet."""
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))

    def call(*args):
        return subprocess.run(
            [*HOLDFAST, *args], capture_output=True, text=True, timeout=20, check=False, cwd=tmp_path
        )

    return call


def test_a_command_that_goes_elsewhere_still_finds_the_store(holdfast, tmp_path):
    script = 'cd /; echo "$HOLDFAST_URL"'
    done = holdfast("run", "k", "--url", "sqlite:///rel.db?busy_timeout=2", "--", "sh", "-c", script)
    assert done.stdout == f"sqlite:///{tmp_path}/rel.db?busy_timeout=2\n"
    assert (tmp_path / "rel.db").exists()


def test_a_url_may_be_in_the_spelling_of_sqlalchemy(holdfast, tmp_path, monkeypatch):
    for name in ("a.db", "b.db"):
        with Holdfast(f"sqlite:///{tmp_path}/{name}") as locks, locks.hold("k"):
            pass
    for args in (
        ["show", "k", "--url", "sqlite+pysqlite:///a.db"],
        ["schema", "status", "sqlite+aiosqlite:///a.db"],
    ):
        assert holdfast(*args).returncode == 0
    missing = holdfast("ls", "--url", "sqlite+pysqlite:///missing.db")
    assert "missing.db does not exist" in missing.stderr
    assert not (tmp_path / "missing.db").exists()
    monkeypatch.setenv("HOLDFAST_URL", "sqlite+pysqlite:///b.db")
    assert holdfast("show", "k").returncode == 0


def test_only_relative_files_are_made_absolute(tmp_path, monkeypatch):
    folder = tmp_path / "100%?#"
    folder.mkdir()
    monkeypatch.chdir(folder)
    here = f"sqlite:///{tmp_path}/100%25%3F%23"
    assert absolute("sqlite:///a%20b.db?x=y") == f"{here}/a%20b.db?x=y"
    for url in ("sqlite:////a.db", "sqlite:///%2Fa.db", "sqlite:///", "sqlite:///:memory:", "other://x/y"):
        assert absolute(url) == url


@pytest.mark.parametrize(
    "args", [["run", "k", "--", "true"], ["ls"], ["show", "k"], ["break", "k", "--reason", "x"], ["sweep"]]
)
def test_a_store_inside_one_process_is_of_no_use_to_commands(holdfast, args):
    done = holdfast("--url", "memory://", *args)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith("holdfast: memory:// is inside one process")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("args", [["ls"], ["show", "k"], ["break", "k", "--reason", "x", "--yes"]])
def test_looking_at_a_file_that_does_not_exist_is_an_error_and_does_not_make_it(holdfast, tmp_path, args):
    done = holdfast("--url", "sqlite:///no.db", *args)
    assert (done.returncode, done.stdout) == (79, "")
    assert done.stderr == f"holdfast: {tmp_path}/no.db does not exist; nothing was ever locked there\n"
    assert not (tmp_path / "no.db").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the default file is elsewhere")
def test_ls_says_that_nothing_is_held_in_a_default_file_that_is_not_there_yet(holdfast, tmp_path):
    file = tmp_path / "state" / "holdfast" / "locks.db"
    done = holdfast("ls")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"holdfast: no locks are held in sqlite:///{file}\n"
    assert not file.exists()


def test_ls_says_where_it_found_nothing_also_in_a_pipe(holdfast, tmp_path):
    Holdfast(f"sqlite:///{tmp_path}/x.db").close()
    done = holdfast("ls", "--url", "sqlite:///x.db?busy_timeout=2")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"holdfast: no locks are held in sqlite:///{tmp_path}/x.db\n"
    done = holdfast("ls", "pre", "--state", "all", "--url", "sqlite:///x.db")
    assert done.stderr == f"holdfast: no such locks are in sqlite:///{tmp_path}/x.db\n"
    done = holdfast("ls", "--json", "--url", "sqlite:///x.db")
    assert (done.stdout, done.stderr) == ("", "")


def test_a_url_is_shown_without_its_secrets():
    assert shown("other://me:secret@db:5432/x?password=secret") == "other://db:5432/x"
    assert shown("sqlite:////home/me@work/x.db?busy_timeout=2") == "sqlite:////home/me@work/x.db"


PLACE = "postgresql://app:secret@db.internal/app"


@pytest.mark.parametrize(
    "args",
    [
        ["ls", PLACE],
        ["ls", "sqlite:///locks.db"],
        ["show", PLACE],
        ["watch", PLACE],
        ["break", PLACE, "--reason", "x", "--yes"],
        ["resize", PLACE, "3"],
        ["work", "list", PLACE],
        ["work", "offer", "job:1", PLACE],
        ["run", PLACE, "--", "true"],
        ["sweep", PLACE],
        ["instances", PLACE],
        ["show", "k", PLACE],
    ],
)
def test_a_url_in_the_place_of_a_key_is_refused_with_the_fix(holdfast, args):
    """What was meant is another store than the one that would be asked."""
    done = holdfast(*args)
    assert (done.returncode, done.stdout) == (64, "")
    assert "the store is named with --url" in done.stderr
    assert "secret" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_url_can_be_a_key_where_the_store_is_named(holdfast):
    done = holdfast("run", "https://example.com/feed", "--url", "sqlite:///x.db", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\n")
