"""`python -m leasehold` is the command line."""

import sys

from leasehold.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
