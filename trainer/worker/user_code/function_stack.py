"""Says in a trial's log where its training function is, shortly before the processes are killed because of it."""

import logging
import sys
import traceback
from itertools import dropwhile

from trainer.ray_train.train_session import training_thread, world
from trainer.worker.user_code.user_code import call, find_function
from trainer.worker.user_code.user_frames import trainer_folder

logger = logging.getLogger("paceline")

CALLS_USER_CODE = (find_function.__name__, call.__name__)


def log_function_stack(why: str) -> None:
    """Called in the worker process, in another thread than the training function's.

    Nothing is said of a function that has returned. Native code that holds the GIL lets no other thread run.
    """
    thread = training_thread()
    frame = None if thread is None else sys._current_frames().get(thread)  # noqa: SLF001 - documented, and the only way
    frames = [] if frame is None else _user_frames(traceback.extract_stack(frame))
    if frames:
        rank, _ = world()
        stack = "".join(traceback.format_list(frames))
        logger.warning("rank %d %s; its training function is here (most recent call last):\n%s", rank, why, stack)


def _user_frames(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """The frames below the import or the call of the user's function, without the frames of Paceline."""
    ours = trainer_folder()

    def calls_user(frame: traceback.FrameSummary) -> bool:
        return frame.filename.startswith(ours) and frame.name in CALLS_USER_CODE

    within = dropwhile(lambda frame: not calls_user(frame), frames)
    return [frame for frame in within if not frame.filename.startswith((ours, "<frozen importlib"))]
