"""Runs a program whose clock can be stepped: `python -m tests.chaos.system.stepped_clock FILE MODULE ARGUMENT …`.

The file has the seconds that the clock is ahead, or behind if they are negative. It is read at every look at the clock.
Monotonic clocks go on as they are, as on a real machine.
"""

import runpy
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from service import clock


def main(file: Path, module: str) -> None:
    real = time.time

    def stepped() -> float:
        return real() + float(file.read_text() or 0)

    time.time = stepped
    time.time_ns = lambda: int(stepped() * 1e9)
    clock.utc_now = lambda: datetime.fromtimestamp(stepped(), UTC)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    main(Path(sys.argv[0]), sys.argv.pop(1))
