"""`holdfast ls`, `show`, `break`, `sweep`, `schema`, and what all commands have in common.

What they say of shared locks, semaphores and operations is in `test_cli_family`.
"""

import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import Holdfast, LeaseLost, __version__
from holdfast.cli.ls import LAYOUT
from holdfast.cli.options import duration
from holdfast.cli.output import cut, duration_text, fitted, table, width_of
from tests.e2e.support import HOLDFAST, holdfast, output


def at_terminal(args, keys=b"", columns=80):
    """Run a command at a terminal; return its exit code and what was to be seen."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.environ.pop("NO_COLOR", None)
        os.execvp("sh", ["sh", "-c", f'stty cols {columns}; exec "$@"', "sh", *HOLDFAST, *args])
    os.write(fd, keys)
    seen = b""
    try:
        while chunk := os.read(fd, 10_000):
            seen += chunk
    except OSError:  # the other end is closed
        pass
    os.close(fd)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), seen.decode()


# ls


def test_ls_shows_held_locks_in_a_table(locks):
    with locks.hold("workflow:1", owner="worker-7") as lease, locks.hold("工作流", owner="b"):
        locks.acquire("free", owner="c").release()
        head, *rows = output("ls", "--state", "held").splitlines()
    assert head.split("  ")[0].strip() == "KEY"
    assert [row.split()[0] for row in rows] == ["workflow:1", "工作流"]
    assert rows[0].split()[1:3] == ["held", "worker-7"]
    assert rows[0].split()[-2:] == ["-", str(lease.token)]
    assert {width_of(row) for row in rows} == {width_of(head)}


def test_ls_can_choose(locks):
    def keys(*args):
        return [json.loads(line)["key"] for line in output("ls", "--json", *args).splitlines()]

    with locks.hold("node:1:a", owner="x"), locks.hold("node:2:b", owner="y"), locks.hold("other", owner="x"):
        locks.acquire("free", owner="c").release()
        locks.acquire("over", owner="z", ttl=0.1, renew=False)
        time.sleep(0.15)
        assert keys("node:1") == ["node:1:a"]
        assert keys("--type", "node") == ["node:1:a", "node:2:b"]
        assert keys("--owner", "x") == ["node:1:a", "other"]
        assert keys("--state", "free") == ["free"]
        assert keys("--state", "expired") == ["over"]
        assert keys("--state", "all") == ["free", "node:1:a", "node:2:b", "other", "over"]


def test_ls_json_has_all_there_is(locks):
    with locks.hold("a", owner="me") as lease:
        (line,) = output("ls", "--json").splitlines()
    lock = json.loads(line)
    assert lock["holder"].pop("held_for") >= 0
    assert 15 < lock.pop("expires_in") <= 30
    assert lock == {
        "key": "a",
        "state": "held",
        "token": lease.token,
        "holds": 1,
        "waiting": 0,
        "mode": "exclusive",
        "permits": 0,
        "taken": 0,
        "operation": False,
        "kept": None,
        "kept_for": 0.0,
        "holder": {
            "owner": "me",
            "host": os.uname().nodename,
            "pid": os.getpid(),
            "token": lease.token,
            "claimed": True,
            "take": 1,
            "gone": False,
        },
    }


def test_ls_fits_into_the_terminal_and_is_coloured_there(locks, monkeypatch):
    with locks.hold("k" * 100, owner="o" * 100):
        code, seen = at_terminal(["ls"], columns=110)
        assert code == 0
        assert "\x1b[32mheld" in seen
        plain = seen.replace("\x1b[32m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
        assert "kkk…" in plain
        assert all(width_of(line) <= 110 for line in plain.splitlines())


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (None, "KEY STATE OWNER HOST:PID HELD FOR LEASE LEFT WAITING TOKEN"),
        (110, "KEY STATE OWNER HOST:PID HELD FOR LEASE LEFT WAITING TOKEN"),
        (80, "KEY STATE OWNER HELD FOR LEASE LEFT WAITING TOKEN"),
        (70, "KEY STATE HELD FOR LEASE LEFT WAITING TOKEN"),
        (60, "KEY STATE HELD FOR LEASE LEFT WAITING"),
        (20, "KEY STATE"),
        (10, "KEY STATE"),
    ],
)
def test_ls_leaves_out_columns_but_never_cuts_a_token(width, columns):
    token = "1794750009248998"
    row = ("k" * 40, "held", "o" * 40, "host:4711", "0.1 s", "30.0 s", "-", token)
    rows = fitted(LAYOUT, [row, ("short", *row[1:])], width)
    assert " ".join(cell.strip() for cell in rows[0]) == columns
    assert width is None or all(width_of("  ".join(cells)) <= width for cells in rows)
    assert (rows[1][-1] == token) == columns.endswith("TOKEN")


def test_no_color_is_respected(locks, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    script = f"{sys.executable} -m holdfast ls; echo done"
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", script])
    seen = b""
    while b"done" not in seen:
        seen += os.read(fd, 1000)
    os.close(fd)
    os.waitpid(pid, 0)
    assert b"no locks are held in sqlite:" in seen
    assert b"\x1b" not in seen


# show


def test_show_tells_holder_queue_and_history(locks):
    waiting = subprocess.Popen([*HOLDFAST, "run", "k", "--owner", "next", "--", "true"])
    with waiting, locks.hold("k", owner="first") as lease:
        while not locks.inspect("k").waiting:
            time.sleep(0.01)
        text = output("show", "k")
        data = json.loads(output("show", "k", "--json"))
    assert waiting.returncode == 0
    lines = [line.split() for line in text.splitlines()]
    assert ["state", "held"] in lines
    assert ["token", str(lease.token)] in lines
    assert ["owner", "first"] in lines
    assert any(line[:2] == ["1", "next"] for line in lines)
    assert [waiter["owner"] for waiter in data["waiters"]] == ["next"]
    assert data["history"] == []


def test_show_of_a_key_that_was_never_used_exits_with_1(locks):
    done = holdfast("show", "nothing")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "holdfast: 'nothing' was never used, or long ago\n"


def test_what_others_wrote_cannot_steer_the_terminal(locks, tmp_path):
    """Clients check what they write; somebody else with access to the file need not."""
    _lease = locks.acquire("k", owner="me")
    locks.break_lock("k", reason="x", by="ops")
    with closing(sqlite3.connect(tmp_path / "locks.db", isolation_level=None)) as other:
        other.execute("UPDATE holdfast_history SET reason = ?, caused_by = ?", ("\x1b[2Jgone\n", "ops\x07"))
    text = output("show", "k")
    assert "by ops\\x07: \\x1b[2Jgone\\n" in text
    assert "\x1b" not in text


# break


def test_break_says_who_lost_it_and_who_has_it_now(locks):
    waiting = subprocess.Popen([*HOLDFAST, "run", "k", "--owner", "next", "--", "true"])
    lease = locks.acquire("k", owner="first")
    with waiting:
        while not locks.inspect("k").waiting:
            time.sleep(0.01)
        text = output("break", "k", "--reason", "stuck", "--by", "ops", "--yes")
    assert text.startswith(f"first (host {os.uname().nodename}, pid {os.getpid()}) has lost 'k' after ")
    assert text.endswith(f"(token {lease.token}); next has it now\n")
    with pytest.raises(LeaseLost, match="broken by ops \\(stuck\\)"):
        lease.release()


def test_break_without_a_terminal_needs_yes(locks):
    with locks.hold("k", owner="me"):
        done = holdfast("break", "k", "--reason", "stuck", stdin=subprocess.DEVNULL)
        assert done.returncode == 64
        assert done.stderr == "holdfast: there is no terminal to ask at: confirm with --yes\n"


@pytest.mark.parametrize(("keys", "code"), [(b"n\n", 1), (b"\n", 1), (b"y\n", 0)])
def test_break_asks_at_a_terminal(locks, keys, code):
    _lease = locks.acquire("k", owner="me")
    ended, seen = at_terminal(["break", "k", "--reason", "stuck"], keys)
    assert ended == code, seen
    assert "'k' is held by me (host " in seen
    assert "nobody waits for it." in " ".join(seen.split())
    assert "break it? [y/N]" in seen
    assert all(len(line) < 80 for line in seen.partition("break it?")[0].splitlines())
    assert (locks.inspect("k").state == "free") == (code == 0)


def test_break_spares_a_lease_that_came_after_the_given_token(locks):
    lease = locks.acquire("k", owner="me")
    done = holdfast("break", "k", "--reason", "x", "--token", str(lease.token - 1), "--yes")
    assert done.returncode == 77
    assert locks.inspect("k").token == lease.token
    text = output("break", "k", "--reason", "x", "--token", str(lease.token), "--yes", "--json")
    assert json.loads(text)["holder"]["owner"] == "me"
    with pytest.raises(LeaseLost):
        lease.release()


def test_break_of_a_free_lock_exits_with_77(locks):
    done = holdfast("break", "k", "--reason", "x", "--yes")
    assert (done.returncode, done.stderr) == (77, "holdfast: 'k' is not held: it is free\n")


# sweep and schema


def test_sweep_settles_what_is_over(locks):
    locks.acquire("k", owner="me", ttl=0.1, renew=False)
    time.sleep(0.15)
    assert json.loads(output("sweep", "--json"))["expired"] == 1
    assert output("sweep").startswith("settled 0 expired leases; removed ")


def test_schema_is_looked_at_made_and_dropped(url, tmp_path):
    file = tmp_path / "locks.db"
    assert "no file yet" in not_ready("schema")
    assert not file.exists()
    assert "version 1, up to date" in output("schema", "apply")
    assert "version 1, up to date" in output("schema", "status")
    assert "CREATE TABLE holdfast_locks" in output("schema", "print")
    assert holdfast("schema", "drop", stdin=subprocess.DEVNULL).returncode == 64
    assert "dropped 11 tables" in output("schema", "drop", "--yes")
    assert "no holdfast tables" in not_ready("schema", "status")


def not_ready(*args):
    done = holdfast(*args)
    assert (done.returncode, done.stderr) == (79, "")
    return done.stdout


def test_the_status_of_a_server_without_tables_is_no_success(postgres_url, mariadb_url):
    for url in (postgres_url, mariadb_url):
        assert "no holdfast tables" in not_ready("schema", "status", url)
        output("schema", "apply", url)
        assert output("schema", "status", url).endswith(", up to date\n")


def test_ls_says_that_there_are_more_and_all_lists_them(locks):
    with locks.hold("held"):
        output("ls")
        locks.acquire("free").release()
        locks.acquire("over", ttl=0.1, renew=False, owner="me")
        time.sleep(0.15)
        done = holdfast("ls")
        assert [line.split()[0] for line in done.stdout.splitlines()] == ["KEY", "held"]
        assert done.stderr == "holdfast: there are others, which are expired or free: see --all\n"
        assert holdfast("ls", "no such").stderr == f"holdfast: no such locks are held in {locks.url}\n"
        keys = [line.split()[0] for line in output("ls", "--all").splitlines()]
        assert keys == ["KEY", "free", "held", "over"]
        assert output("ls", "--state", "held").count("\n") == 2
        assert output("ls", "--json").count("\n") == 1
    assert holdfast("ls", "--all", "--state", "free").returncode == 64


def test_schema_drop_says_what_would_be_lost(locks, tmp_path):
    with locks.hold("k"):
        code, seen = at_terminal(["schema", "drop"], b"n\n")
        assert code == 1
        assert "with 1 lock held now? [y/N]" in " ".join(seen.split())
        assert str(tmp_path / "locks.db") in seen
        assert locks.inspect("k").state == "held"


# All commands


def test_the_version_is_told():
    assert output("--version") == f"holdfast {__version__}\n"


def test_without_a_command_there_is_help():
    done = holdfast()
    assert done.returncode == 64
    assert "holdfast run nightly-report" in done.stdout


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["sweep", "--url", "sqlite:////no/such/folder/x.db"], 79, "check that the directory exists"),
        (["ls", "--url", "carrier-pigeon://"], 64, "no store for "),
        (["--url", "sqlite://", "ls"], 64, "names no file"),
        (["ls", "--state", "odd"], 64, "try 'holdfast ls --help'"),
        (["ls", "--odd"], 64, "unrecognized arguments: --odd; try 'holdfast ls --help'"),
        (["schema", "--url", "memory://"], 64, "has no tables of its own"),
    ],
)
def test_errors_are_one_line_with_their_exit_code(args, code, message):
    done = holdfast(*args)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("holdfast: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_url_may_stand_before_and_behind_the_command(locks, tmp_path):
    other = f"sqlite:///{tmp_path / 'other.db'}"
    Holdfast(other).close()
    with locks.hold("k"):
        assert "k" in output("ls", "--json")
        assert output("ls", "--json", "--url", other) == output("--url", other, "ls", "--json") == ""


def test_a_reader_that_has_seen_enough_is_no_error(locks):
    for number in range(300):
        locks.acquire(f"{number:0200}", owner="me").release()
    done = subprocess.run(
        ["sh", "-c", f"{{ {sys.executable} -m holdfast ls --state all; echo $? >&2; }} | head -1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("KEY ")
    assert done.stderr == "141\n"


def test_a_file_that_is_no_database_is_an_error_and_not_a_traceback(tmp_path):
    path = Path(tmp_path / "x.db")
    path.write_text("not a database, but long enough to look like one" * 50)
    done = holdfast("ls", "--url", f"sqlite:///{path}")
    assert done.returncode == 74
    assert "it is not an SQLite database" in done.stderr


@pytest.mark.parametrize(
    ("text", "seconds"), [("2", 2), ("0.5", 0.5), (".5s", 0.5), ("500ms", 0.5), ("3m", 180), ("1h", 3600)]
)
def test_durations_are_read(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (99.94, "99.9 s"), (185, "3m05s"), (7380, "2h03m"), (4 * 86400 + 7200, "4d02h")],
)
def test_durations_are_written(seconds, text):
    assert duration_text(seconds) == text


def test_wide_characters_are_counted_and_cut():
    assert cut("工作流工作流", 7) == "工作流…"
    rows = table([("工作", "1"), ("abcdefghijklmnop", "22")], right=frozenset({1}), shrink={0: 3}, width=16)
    assert rows == [["工作        ", " 1"], ["abcdefghijk…", "22"]]


def test_what_a_terminal_cannot_show_is_no_reason_to_die(locks, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with locks.hold("工作流", owner="me"):
        assert "???" in output("ls")


def test_ctrl_c_exits_with_130(locks):
    with locks.hold("k"):
        process = subprocess.Popen([*HOLDFAST, "run", "k", "--", "true"], stderr=subprocess.PIPE)
        with process:
            while not locks.inspect("k").waiting:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            assert (process.wait(5), process.stderr.read()) == (130, b"")
