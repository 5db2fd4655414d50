"""`python -m dragfl`."""

import sys

from dragfl.cli import main

sys.exit(main())
