"""``holdfast sweep``: forget what is over."""

from __future__ import annotations

import argparse

from holdfast.cli.options import add, add_store, patience
from holdfast.cli.output import count, tell
from holdfast.cli.target import target
from holdfast.client.sync.client import Holdfast
from holdfast.core.data import as_dict

DESCRIPTION = """\
Settle leases that ran out, remove dead waiters, and forget locks that nobody
has used for an hour, attempts that ended long ago, and history older than 30
days. Clients do this by themselves now and then; a store that nobody uses any
more can be tidied with it.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    add(parser, "--limit N", "how much to do in one transaction (default: 1000)", default=1000)
    add_store(parser, json="write one JSON object")


def call(args: argparse.Namespace) -> None:
    """Sweep, and print the totals."""
    with Holdfast(target(args), wait_for_store=patience(args)) as locks:
        swept = locks.sweep(limit=args.limit)
    counts = as_dict(swept)
    del counts["after"]
    text = (
        f"settled {count(swept.expired, 'expired lease')}; removed {count(swept.tickets, 'dead waiter')},"
        f" {count(swept.locks, 'unused lock')}, {count(swept.ended, 'ended attempt')},"
        f" {count(swept.history, 'old event')}"
    )
    tell(args, counts, text)
