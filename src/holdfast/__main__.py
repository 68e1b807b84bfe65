"""``python -m holdfast``: the command line."""

import sys

from holdfast.cli import main

sys.exit(main())
