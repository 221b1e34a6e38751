"""Lets the clock of a program and its children be stepped: Python imports this at its start.

The file that CHAOS_CLOCK names has the seconds by which the clock is ahead, or behind if they are negative. It is read
at every look at the clock. Monotonic clocks go on as they are, as on a real machine.
"""

import os
import time
from datetime import UTC, datetime
from pathlib import Path

from service import clock

_file = Path(os.environ["CHAOS_CLOCK"])
_real = time.time


def _stepped() -> float:
    return _real() + float(_file.read_text())


time.time = _stepped
time.time_ns = lambda: int(_stepped() * 1e9)
clock.utc_now = lambda: datetime.fromtimestamp(_stepped(), UTC)
