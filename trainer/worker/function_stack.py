"""Says in a trial's log where its training function is, shortly before the processes are killed because of it."""

import logging
import os
import sys
import traceback
from itertools import dropwhile

from trainer.ray_train.train_session import training_thread, world

logger = logging.getLogger("paceline")


def log_function_stack(why: str) -> None:
    """Called in the worker process, in another thread than the training function's.

    Nothing is said of a function that has returned. Native code that holds the GIL lets no other thread run.
    """
    thread = training_thread()
    frame = None if thread is None else sys._current_frames().get(thread)  # noqa: SLF001 - documented, and in no other way
    if frame is not None:
        rank, _ = world()
        stack = "".join(traceback.format_list(_user_frames(traceback.extract_stack(frame))))
        logger.warning("rank %d %s; its training function is here (most recent call last):\n%s", rank, why, stack)


def _user_frames(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """Without those of Paceline, and of Ray's thread above it."""
    ours = os.path.dirname(os.path.dirname(log_function_stack.__code__.co_filename)) + os.sep  # noqa: PTH120
    within = dropwhile(lambda frame: not frame.filename.startswith(ours), frames)
    return [frame for frame in within if not frame.filename.startswith((ours, "<frozen importlib"))]
