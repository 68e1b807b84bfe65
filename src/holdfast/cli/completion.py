"""``holdfast completion``: what a shell needs to complete our command line."""

from __future__ import annotations

import argparse

from holdfast.cli import completing
from holdfast.cli.options import Commands

DESCRIPTION = """\
Print a script that lets a shell complete commands, options, files and urls.

  bash   eval "$(holdfast completion bash)"     in ~/.bashrc
  zsh    eval "$(holdfast completion zsh)"      in ~/.zshrc, after compinit
  fish   holdfast completion fish | source      in ~/.config/fish/config.fish
"""


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "completion",
        help="print a script for a shell's completion",
        usage="holdfast completion bash|zsh|fish",
        description=DESCRIPTION,
    )
    parser.add_argument("shell", choices=tuple(completing.SHELLS), metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Print the script."""
    from holdfast.cli import make_parser

    print(completing.SHELLS[args.shell](make_parser()), end="")
    return 0
