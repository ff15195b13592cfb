"""The benchmarks are no part of the package: they are found beside the tests, behind everything that is installed."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent.parent))
