"""Completion in real shells: what is offered where, and that nothing is missing."""

import os
import shutil
import subprocess
import sys

import pytest

from holdfast.cli import make_parser
from holdfast.cli.completion import SHELLS
from holdfast.cli.options import commands_of
from tests.e2e.support import holdfast, output

# As readline calls it; but bash's own words do not matter.
ASK = """
source "$1"
COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
COMP_LINE=$2 COMP_POINT=${#2}
_holdfast
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "bash"
    path.write_text(SHELLS["bash"](make_parser()))
    return path


@pytest.fixture
def bash(script, tmp_path):
    (tmp_path / "server.toml").touch()
    (tmp_path / "locks file.db").touch()

    def complete(line):
        done = subprocess.run(
            ["bash", "--norc", "-c", ASK, "bash", script, line],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            timeout=60,
        )
        assert done.stderr == ""
        return list(dict.fromkeys(filter(None, done.stdout.split("\n"))))

    return complete


def commands():
    return commands_of(make_parser())


def test_bash_completes_commands(bash):
    assert bash("holdfast ") == list(commands())
    assert bash("holdfast s") == ["show", "sweep", "schema", "serve"]
    assert bash("holdfast --url sqlite:///x.db sc") == ["schema"]


@pytest.mark.parametrize("command", commands())
def test_bash_completes_every_option_of_every_command(bash, command):
    offered = bash(f"holdfast {command} --")
    assert offered == [
        name
        for action in commands()[command]._actions
        for name in action.option_strings
        if name.startswith("--")
    ]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("holdfast schema ", ["status", "print", "apply", "grants", "drop"]),
        ("holdfast schema apply post", ["postgres://", "postgresql://"]),
        ("holdfast schema apply --grant app post", ["postgres://", "postgresql://"]),
        ("holdfast schema --url my", ["mysql://"]),
        ("holdfast doctor my", ["mysql://"]),
        ("holdfast --url my", ["mysql://"]),
        ("holdfast --url postgresql:", ["//"]),  # bash's word begins after the colon
        ("holdfast --url sqlite:///", ["///locks file.db", "///server.toml"]),
        ("holdfast ls --state ", ["held", "expired", "free", "all"]),
        ("holdfast ls --json --state f", ["free"]),
        ("holdfast work sh", ["show"]),
        ("holdfast serve --config s", ["server.toml"]),
        ("holdfast serve --tls-key locks", ["locks file.db"]),
        ("holdfast every 5m --missed ", ["once", "skip", "all"]),
        ("holdfast run job:1 -- ech", ["echo"]),
        ("holdfast run job --ttl 5 -- cat s", ["server.toml"]),
        ("holdfast run job -- ls --sta", []),  # that command's business
        ("holdfast show ", []),  # keys can be anything
        ("holdfast show k --limit ", []),
        ("holdfast completion ", ["bash", "zsh", "fish"]),
        ("holdfast no-such-command ", []),
    ],
)
def test_bash_completes_what_is_known_there(bash, line, offered):
    assert sorted(bash(line)) == sorted(offered)


def test_the_script_is_what_the_command_prints(script):
    assert output("completion", "bash") == script.read_text()
    assert holdfast("completion", "tcsh").returncode == 64


def installed(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed; bash is tested")
    return shell


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("holdfast ", {"run", "every", "schema", "completion"}),
        ("holdfast serve --auth ", {"auto", "required"}),
        ("holdfast schema ", {"status", "grants"}),
        ("holdfast run --t", {"--ttl", "--timeout", "--take"}),
        ("holdfast --url my", {"mysql://"}),
        ("holdfast run job -- ech", {"echo"}),
    ],
)
def test_fish_completes_the_same(tmp_path, line, some):
    path = tmp_path / "holdfast.fish"
    path.write_text(SHELLS["fish"](make_parser()))
    done = subprocess.run(
        [installed("fish"), "--no-config", "-c", f"source {path}; complete -C '{line}'"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.stderr == ""
    assert some <= {offered.partition("\t")[0] for offered in done.stdout.splitlines()}


# A terminal in which somebody types the line and asks for what there is; the prompt comes after it.
TYPE = """
import os, pty, select, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.environ.update(TERM="dumb", PS1="READY> ", COLUMNS="200", LINES="200")
    os.execvp("zsh", ["zsh", "-f", "-i"])
seen = b""
def read_until(what):
    global seen
    end = time.monotonic() + 60
    while what not in seen:
        assert time.monotonic() < end, seen
        if select.select([fd], [], [], 1)[0]:
            seen += os.read(fd, 65536)
read_until(b"READY> ")
os.write(fd, b"autoload -U compinit; compinit -D -u; source " + sys.argv[1].encode() + b"; PS1='G''O> '\\n")
read_until(b"GO> ")
seen = b""
os.write(fd, sys.argv[2].encode() + b"\\t\\t")
for word in sys.argv[3:]:
    read_until(word.encode())
os.close(fd)
"""


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("holdfast ", ["every", "schema", "completion"]),
        ("holdfast serve --auth ", ["auto", "required"]),
        ("holdfast schema ", ["status", "grants"]),
        ("holdfast run --t", ["--ttl", "--timeout", "--take"]),
        ("holdfast --url my", ["sql://"]),  # the rest of it
    ],
)
def test_zsh_completes_the_same(tmp_path, line, some):
    path = tmp_path / "_holdfast_script"
    path.write_text(SHELLS["zsh"](make_parser()))
    assert subprocess.run([installed("zsh"), "-n", path], check=False).returncode == 0
    subprocess.run([sys.executable, "-c", TYPE, path, line, *some], check=True, timeout=120)
