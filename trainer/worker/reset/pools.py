"""Processes that libraries of the trial keep for their next use, with the trial's own modules and data in them."""

import gc
import sys


def end_pools() -> None:
    """End joblib's pool. Without it the next call of joblib starts a new one."""
    executor = getattr(sys.modules.get("joblib.externals.loky.reusable_executor"), "_executor", None)
    if executor is not None:
        executor.shutdown(wait=True, kill_workers=True)


def end_data_loaders() -> None:
    """End the processes of torch's DataLoaders that are still referenced.

    The garbage collector may close their connections first. Torch then waits for each process for five seconds.
    """
    iterator = getattr(sys.modules.get("torch.utils.data.dataloader"), "_MultiProcessingDataLoaderIter", None)
    if iterator is None:
        return
    for found in [each for each in gc.get_objects() if type(each) is iterator]:
        found.__del__()
