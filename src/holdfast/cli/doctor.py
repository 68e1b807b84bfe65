"""``holdfast doctor``: whether everything works between here and the store."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import suppress

from holdfast import errors
from holdfast.cli.checkup import Checkup, Finding
from holdfast.cli.checkup_cluster import look_at_cluster
from holdfast.cli.connection import Connection
from holdfast.cli.options import add, add_store, patience, url_of
from holdfast.cli.output import DIM, GREEN, RED, YELLOW, can_show, clean, count, paint
from holdfast.cli.target import existing
from holdfast.cli.target import shown as shown_url
from holdfast.core import keys
from holdfast.core.data import as_dict

DESCRIPTION = """\
Look at everything between here and the store, and say what to do about what
does not work: whether it can be reached, the version of its tables, what is set
there for sessions and had to be overridden, whether a lock can be taken and
released, how far its clock is from ours, whether waiters are woken and how
fast, and how long a round trip takes. Of a server also TLS,
who you are there and what you may, and whether it is ready. Where instances
have joined or work was offered: what nobody takes care of.

It takes a lock of its own with a random key for a moment, and leaves nothing
behind. The exit code is 1 if something does not work.
"""

EPILOG = """\
examples:
  holdfast doctor postgresql://db.internal/app
  HOLDFAST_ACCESS_TOKEN=hf_... holdfast doctor https://locks.internal:7373
"""

PREFIX = "holdfast-doctor:"
UNWELL = 1
MARKS = {True: "✓", False: "✗", None: "–"}
ASCII_MARKS = {True: "ok", False: "NO", None: "- "}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    add(parser, "store URL", "where the locks are kept, as with --url", nargs="?")
    text = f"begin the probe's key with this, where not every key may be used (default: {PREFIX})"
    add(parser, "--prefix PREFIX", text)
    add_store(parser, json="write one JSON object a line")


def call(args: argparse.Namespace) -> int:
    """Print the findings."""
    if args.store is not None:
        if url_of(args) not in (None, args.store):
            raise errors.SettingsError("give the url once, not twice")
        args.url = args.store
    if args.prefix is not None:
        keys.validate(args.prefix)
    url = existing(args)
    if not args.json:
        print(clean(shown_url(url)))
    if patience(args):
        with suppress(errors.HoldfastError), Connection(url, patience(args)):
            pass  # it is ready; if it is not even now, that is found below
    bad = remarks = 0
    marks = MARKS if can_show("✓✗") else ASCII_MARKS
    for finding in _findings(url, args.prefix):
        bad += finding.good is False
        remarks += finding.good is None
        if args.json:
            print(json.dumps(as_dict(finding)), flush=True)
        else:
            _print(finding, marks)
    if not args.json:
        print(_summary(bad, remarks))
    return UNWELL if bad else 0


def _findings(url: str, prefix: str | None) -> Iterator[Finding]:
    if url.startswith(("http://", "https://")):
        from holdfast.cli.checkup_server import ServerCheckup

        findings = ServerCheckup(url, prefix or PREFIX, given=prefix is not None).run()
    else:
        findings = Checkup(url, prefix or PREFIX).run()
    well = True
    for finding in findings:
        yield finding
        well &= finding.good is not False
    if well:
        yield from look_at_cluster(url)


def _print(finding: Finding, marks: dict[bool | None, str]) -> None:
    style = {True: GREEN, False: RED, None: YELLOW}[finding.good]
    mark = paint(marks[finding.good], style)
    print(f" {mark} {finding.name:<17} {clean(finding.text)}")
    if finding.advice:
        print(f"   {'':<17} {paint(clean(finding.advice), DIM)}")
    sys.stdout.flush()


def _summary(bad: int, remarks: int) -> str:
    if bad:
        return f"{count(bad, 'thing')} {'does' if bad == 1 else 'do'} not work"
    return "everything works" + (f", with {count(remarks, 'remark')}" if remarks else "")
