"""A command line that has another one in it: what follows ``--`` is that command's business alone."""

from __future__ import annotations

import argparse
import shlex

from holdfast import errors

GUARDING = ("run", "every")


def split(argv: list[str], parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """Split the arguments of ``run`` and ``every`` at ``--``."""
    values: frozenset[str] = with_value(parser)
    words: list[str] = []  # neither options nor their values: run, then the key
    option = ""
    for at, word in enumerate(argv):
        if word == "--" and words:
            return argv[:at], argv[at + 1 :]
        if option in values:
            option = ""
        elif word.startswith("-") and word != "-":
            option = word
        else:
            option = ""
            words.append(word)
        if len(words) == 1 and word is words[0]:
            if word not in GUARDING:
                break
            values |= with_value(commands_of(parser)[word])
        if len(words) > 2:
            raise errors.SettingsError(_meant(argv, at))
    return argv, []


def _meant(argv: list[str], at: int) -> str:
    if "every" in argv[:at] and "--" in argv[at:]:
        return "quote the schedule: holdfast every '*/5 * * * *' -- COMMAND"
    return f"put -- before the command: {shlex.join(['holdfast', *argv[:at], '--', *argv[at:]])}"


def with_value(parser: argparse.ArgumentParser) -> frozenset[str]:
    """Return the options of a command that are followed by a value."""
    return frozenset(
        name
        for action in parser._actions  # noqa: SLF001 - there is no other way to ask
        if action.option_strings and action.nargs != 0
        for name in action.option_strings
    )


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the commands of a parser, by their names."""
    for action in parser._actions:  # noqa: SLF001 - as above
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}
