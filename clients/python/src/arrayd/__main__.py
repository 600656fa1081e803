"""python3 -m arrayd: the same as arrayd-cli."""
import sys

from .cli import main

sys.exit(main())
