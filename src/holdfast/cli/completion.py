"""``holdfast completion``: what the parsers know, in the words of bash, zsh and fish.

Options and words that can be anything (keys, owners, durations) are left to the person. What follows ``--``
is another command, and completed as such.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable

from holdfast.cli.options import GUARDING, Parser, add, commands_of
from holdfast.core.data import data
from holdfast.stores import SCHEMES

DESCRIPTION = """\
Print a script that lets a shell complete commands, options, files and urls.

  bash   eval "$(holdfast completion bash)"     in ~/.bashrc
  zsh    eval "$(holdfast completion zsh)"      in ~/.zshrc, after compinit
  fish   holdfast completion fish | source      in ~/.config/fish/config.fish
"""

# But for memory://, which is inside one process. After sqlite:/// comes a file.
SQLITE = "sqlite:///"
URLS = (*(f"{scheme}://" for scheme in sorted(SCHEMES - {"memory", "sqlite"})), SQLITE)
ANY, FILES, URL = "any", "files", "urls"  # what a value can be, if it is none of a few words


@data
class Value:
    """What is to be written somewhere: one of *words*, or something of a *kind*. *name* is for people."""

    name: str
    kind: str
    words: tuple[str, ...] = ()


@data
class Option:
    """An option, and its value if it has one."""

    name: str
    help: str
    value: Value | None


@data
class Command:
    """A command: its options, and the words beside them with their places. A star is the rest of them."""

    name: str
    help: str
    options: tuple[Option, ...]
    words: tuple[tuple[str, Value], ...]


def read(parser: Parser) -> tuple[Command, list[Command]]:
    """Return what the parser knows: of ``holdfast`` itself, and of each command."""
    return _command("", parser), [_command(name, each) for name, each in commands_of(parser).items()]


def _command(name: str, parser: Parser) -> Command:
    actions = [
        action
        for action in parser._actions  # noqa: SLF001 - there is no other way to ask
        if not isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    ]
    options = tuple(
        Option(option, _short(action.help), None if action.nargs == 0 else _value(action))
        for action in actions
        for option in action.option_strings
        if option.startswith("--")
    )
    words = [action for action in actions if not action.option_strings]
    places = ("*" if action.nargs == "*" else str(place) for place, action in enumerate(words, 1))
    return Command(name, parser.about, options, tuple(zip(places, map(_value, words), strict=True)))


def _value(action: argparse.Action) -> Value:
    name = action.metavar if isinstance(action.metavar, str) else action.dest
    if action.choices:
        return Value(name, ANY, tuple(map(str, action.choices)))
    return Value(name, {"FILE": FILES, "URL": URL}.get(name, ANY))


def _short(help: str | None) -> str:
    return re.split(r"[;(.:]", help or "", maxsplit=1)[0].strip()


# bash


def bash(parser: Parser) -> str:
    """Return the script for bash. It goes by the line and not by bash's words, which end at every colon."""
    top, commands = read(parser)
    cases = "".join(
        f"                {command.name})\n"
        f"                    options={_names(command.options)}\n"
        f"                    values={_valued(command.options)}\n"
        "                    ;;\n"
        for command in commands
    )
    values = "".join(
        _bash_case(command, option.name, option.value)
        for command in (top, *commands)
        for option in command.options
    )
    words = "".join(
        _bash_case(command, place, value) for command in commands for place, value in command.words
    )
    return f"""\
# bash completion for holdfast: eval "$(holdfast completion bash)"
_holdfast() {{
    local line=${{COMP_LINE:0:COMP_POINT}} command='' pending='' cur word n=1 i last
    local options={_names(top.options)} values={_valued(top.options)} found='' kind=''
    local -a words
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=('')
    last=$((${{#words[@]}} - 1))
    cur=${{words[last]}}
    COMPREPLY=()
    for ((i = 1; i < last; i++)); do
        word=${{words[i]}}
        if [[ -n $pending ]]; then
            pending=''
        elif [[ $word == -- && ' {" ".join(GUARDING)} ' == *" $command "* ]]; then
            [[ $i -eq $((last - 1)) ]] && kind=command || kind=files
            break
        elif [[ $values == *" $word "* ]]; then
            pending=$word
        elif [[ $word == -* ]]; then
            :
        elif [[ -z $command ]]; then
            command=$word
            case $command in
{cases}            esac
        else
            n=$((n + 1))
        fi
    done
    if [[ -n $kind ]]; then
        :
    elif [[ -n $pending ]]; then
        case "$command $pending" in
{values}        esac
    elif [[ $cur == -* ]]; then
        found=$options
    elif [[ -z $command ]]; then
        found='{" ".join(command.name for command in commands)}'
    else
        case "$command $n" in
{words}        esac
    fi
    case $kind in
        files) compopt -o filenames 2>/dev/null; local IFS=$'\\n'; COMPREPLY=($(compgen -f -- "$cur")) ;;
        command) COMPREPLY=($(compgen -c -- "$cur")) ;;
        urls)
            compopt -o nospace 2>/dev/null
            if [[ $cur == {SQLITE}* ]]; then
                local IFS=$'\\n'
                COMPREPLY=($(compgen -P {SQLITE} -f -- "${{cur#{SQLITE}}}"))
            else
                COMPREPLY=($(compgen -W '{" ".join(URLS)}' -- "$cur"))
            fi
            ;;
        *) COMPREPLY=($(compgen -W "$found" -- "$cur")) ;;
    esac
    if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
        COMPREPLY=("${{COMPREPLY[@]#"${{cur%"${{cur##*:}}"}}"}}")
    fi
}}
complete -F _holdfast holdfast
"""


def _names(options: Iterable[Option]) -> str:
    return f"' {' '.join(option.name for option in options)} '"


def _valued(options: Iterable[Option]) -> str:
    return _names(option for option in options if option.value is not None)


def _bash_case(command: Command, name: str, value: Value | None) -> str:
    if value is None or not (value.words or value.kind != ANY):
        return ""
    found = f"found='{' '.join(value.words)}'" if value.words else f"kind={value.kind}"
    return f"            {command.name}' '{name}) {found} ;;\n"


# zsh


def zsh(parser: Parser) -> str:
    """Return the script for zsh."""
    top, commands = read(parser)
    described = "\n".join(f"        {_quoted(f'{each.name}:{each.help}')}" for each in commands)
    cases = "".join(
        f"            {command.name})\n                _arguments -S {_zsh_arguments(command)} ;;\n"
        for command in commands
    )
    return f"""\
#compdef holdfast
# zsh completion for holdfast: eval "$(holdfast completion zsh)", after compinit
_holdfast_commands() {{
    local -a commands=(
{described}
    )
    _describe -t commands command commands
}}
_holdfast_urls() {{
    if [[ $PREFIX == {SQLITE}* ]]; then
        compset -P {SQLITE}
        _files
    else
        compadd -S '' -- {" ".join(URLS)}
    fi
}}
_holdfast() {{
    local context state state_descr line
    typeset -A opt_args
    _arguments -C {" ".join(_zsh_option(option) for option in top.options)} \\
        '1: :_holdfast_commands' '*:: :->rest'
    [[ $state == rest ]] || return
    case $words[1] in
{cases}    esac
}}
if [[ $funcstack[1] == _holdfast ]]; then
    _holdfast "$@"
else
    compdef _holdfast holdfast
fi
"""


def _zsh_arguments(command: Command) -> str:
    parts = [_zsh_option(option) for option in command.options]
    parts += [_quoted(f"{place}:{value.name}:{_zsh_value(value)}") for place, value in command.words]
    if command.name in GUARDING:
        parts.append("'*::command:_normal'")
    return " ".join(parts)


def _zsh_option(option: Option) -> str:
    help = re.sub(r"([\[\]:\\])", r"\\\1", option.help)
    value = "" if option.value is None else f":{option.value.name}:{_zsh_value(option.value)}"
    return _quoted(f"*{option.name}[{help}]{value}")


def _zsh_value(value: Value) -> str:
    if value.words:
        return f"({' '.join(value.words)})"
    return {FILES: "_files", URL: "_holdfast_urls"}.get(value.kind, " ")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# fish


def fish(parser: Parser) -> str:
    """Return the script for fish."""
    top, commands = read(parser)
    lines = ["# fish completion for holdfast: holdfast completion fish | source", "complete -c holdfast -f"]
    lines += [_fish_option("__fish_use_subcommand", option) for option in top.options]
    for command in commands:
        lines.append(
            f"complete -c holdfast -n __fish_use_subcommand -a {command.name} -d {_fish(command.help)}"
        )
        seen = _fish(f"__fish_seen_subcommand_from {command.name}; and not contains -- -- (commandline -opc)")
        lines += [_fish_option(seen, option) for option in command.options]
        lines += [
            f"complete -c holdfast -n {seen} -a {_fish(' '.join(value.words or URLS))}"
            for _, value in command.words
            if value.words or value.kind == URL
        ]
    rest = _fish(f"__fish_seen_subcommand_from {' '.join(GUARDING)}; and contains -- -- (commandline -opc)")
    lines.append(f"complete -c holdfast -n {rest} -F -a '(__fish_complete_command)'")
    return "\n".join(lines) + "\n"


def _fish_option(condition: str, option: Option) -> str:
    line = f"complete -c holdfast -n {condition} -l {option.name[2:]} -d {_fish(option.help)}"
    if option.value is None:
        return line
    if option.value.kind == FILES:
        return f"{line} -r -F"
    words = option.value.words or (URLS if option.value.kind == URL else ())
    return f"{line} -x -a {_fish(' '.join(words))}" if words else f"{line} -x"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: dict[str, Callable[[Parser], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    add(parser, "shell SHELL", "bash, zsh or fish", choices=tuple(SHELLS))


def call(args: argparse.Namespace) -> None:
    """Print the script."""
    print(SHELLS[args.shell](args.parser), end="")
