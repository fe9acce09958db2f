"""`python -m torchcaps` is `torchcaps`."""

import sys

from torchcaps.cli import main

# Training in several processes imports this file once more in each of them.
if __name__ == "__main__":
    sys.exit(main())
