"""`python -m dragfl.cli`."""

import sys

from dragfl.cli import main

sys.exit(main())
