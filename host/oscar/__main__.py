"""`python -m oscar` is the command `oscar`."""

import sys

from oscar.cli import main

if __name__ == "__main__":
    sys.exit(main())
