"""Print the Debian packages that the tests want and this machine does not have. For the Makefile."""

from __future__ import annotations

import sys

from tests.servers.binaries import missing_packages

sys.stdout.write(" ".join(missing_packages()) + "\n")
