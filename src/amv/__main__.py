"""`python -m amv` is `amv`."""

import sys

from amv.cli import main

if __name__ == "__main__":
    sys.exit(main())
