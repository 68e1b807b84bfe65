"""Check that the tests catch every planted flaw: ``python -m proof.mutants``; see `run`."""

import sys

from proof.mutants.run import main

sys.exit(main(sys.argv[1:]))
