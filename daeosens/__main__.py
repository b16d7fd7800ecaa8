"""``python -m daeosens``: the command ``daeosens``."""

import sys

from daeosens.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
