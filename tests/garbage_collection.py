"""Keeps Python's garbage collector away from what lives until the end: imported modules and collected tests.

They are a million objects, and each full collection looks at all of them, which takes a tenth of the CPU time.
"""

import gc

gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
