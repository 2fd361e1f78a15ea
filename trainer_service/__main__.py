"""``python -m trainer_service`` is ``mlagents-style``."""

import sys

from trainer_service.cli import main

if __name__ == "__main__":
    sys.exit(main())
