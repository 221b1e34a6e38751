"""Where the user's code has raised an exception: its frames in the traceback."""

import dis
import os
import re
import traceback
from collections.abc import Iterator
from pathlib import PurePath

OWN_RAISES = {"RAISE_VARARGS", "RERAISE"}
"""The instructions of `raise` and `assert`."""
CALLS = re.compile("CALL|ATTR|IMPORT")


def is_raised_in(folder: str, error: BaseException) -> bool:
    """Whether a line of a file in the folder has raised the error, and not something that it has called.

    A function that is written in C has no frame of its own, and may hide behind an operator, an attribute or an import.
    """
    last = error.__traceback__
    if last is None:
        return False
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    operation = dis.opname[code.co_code[last.tb_lasti]]
    is_own = operation in OWN_RAISES or (isinstance(error, KeyError | NameError) and not CALLS.search(operation))
    return is_own and code.co_filename.startswith(folder + os.sep)


def user_location(error: BaseException, folder: str | None) -> str | None:
    """`file.py:line` of the innermost frame in the user's code."""
    if isinstance(error, SyntaxError) and isinstance(error.filename, str) and error.filename:
        return f"{PurePath(error.filename).name}:{error.lineno}"
    frames = list(_user_frames(traceback.extract_tb(error.__traceback__)))
    in_package = [frame for frame in frames if folder and frame.filename.startswith(folder)]
    innermost = (in_package or frames)[-1:]
    return f"{PurePath(innermost[0].filename).name}:{innermost[0].lineno}" if innermost else None


def user_traceback(error: BaseException) -> str:
    """The whole traceback, causes included, without the frames of Paceline and of the import system."""
    try:
        report = traceback.TracebackException.from_exception(error)
    except Exception:  # noqa: BLE001 - it asks for attributes, for which the user's class may have code
        return plain_traceback(error)
    link: traceback.TracebackException | None = report
    while link is not None:
        link.stack = traceback.StackSummary.from_list(list(_user_frames(link.stack)))
        link = link.__cause__ or link.__context__
    return "".join(report.format())


def plain_traceback(error: BaseException) -> str:
    """The traceback without its causes, and without a look at the exception itself."""
    frames = traceback.StackSummary.from_list(list(_user_frames(traceback.extract_tb(error.__traceback__))))
    return "".join(["Traceback (most recent call last):\n", *frames.format(), f"{type(error).__name__}\n"])


def trainer_folder() -> str:
    """The folder of the trainer, with a separator at its end, where this code was written: maybe on another machine."""
    return f"{PurePath(trainer_folder.__code__.co_filename).parents[2]}{os.sep}"


def _user_frames(frames: traceback.StackSummary) -> Iterator[traceback.FrameSummary]:
    ours = trainer_folder()
    for frame in frames:
        if not frame.filename.startswith((ours, "<frozen importlib")):
            yield frame
