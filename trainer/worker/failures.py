"""Why an attempt ended badly: an exception becomes a kind, a line for a person and the whole traceback."""

import os
import re
import traceback
from collections.abc import Iterator
from typing import Any

from trainer.text import storable
from trainer.worker.user_code import BadEntrypoint

# The kinds of `trainer.wire.FailureKind`, spelled out: this code runs where pydantic may not be.
LOST, PREEMPTED, OUT_OF_MEMORY = "lost", "preempted", "out_of_memory"
USER_ERROR, CANNOT_START = "user_error", "cannot_start"

# The longest texts that are sent, in characters.
MESSAGE_LENGTH = 2_000
TRACEBACK_LENGTH = 100_000
RANKS_LENGTH = 400_000  # of all ranks' tracebacks together

COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # as Ray paints its own errors

MEND_STORAGE = "the experiment's storage must have room, and every node must be able to write to it"

# A process of an attempt has died.
DEATHS = frozenset({"ActorDiedError", "RayActorError", "WorkerGroupStartupFailedError", "WorkerHealthCheckFailedError"})
# A part of Ray has, or the way to it is cut.
RAYS_LOSSES = frozenset(
    {
        "ActorUnavailableError",
        "LocalRayletDiedError",
        "NodeDiedError",
        "OwnerDiedError",
        "RpcError",
        "WorkerCrashedError",
    }
)
# How Ray's head refuses a process that has joined the cluster of an earlier one.
STRANGER = "WrongClusterID"
HEAD_ANEW = "the Ray head was started anew, and its cluster does not know what still ran under the one before"

# How Ray words the death of a worker that its memory monitor ended. (Of one that the kernel ended it can't know.)
MEMORY_WORDS = ("running low on memory", "due to memory pressure (OOM)", "OutOfMemoryError")


class NotSaved(OSError):
    """A checkpoint could not be written where checkpoints go. Comes out of `ray.train.report()`."""


def not_saved(folder: str, error: OSError) -> NotSaved:
    told = NotSaved(f"the checkpoint could not be saved in {folder}: {error}; {MEND_STORAGE}")
    told.errno = error.errno
    return told


def describe(
    error: BaseException, *, rank: int, world_size: int, importing: bool, folder: str | None
) -> dict[str, Any]:
    """What one rank says of its exception. `importing`: before the training function was found."""
    kind = CANNOT_START if importing or isinstance(error, BadEntrypoint) else USER_ERROR
    if is_out_of_memory(error):
        kind = OUT_OF_MEMORY
    if of_another_cluster(error):
        kind = LOST
    where = place(error, folder)
    message = f"{headline(error)} (rank {rank} of {world_size}{', ' + where if where else ''})"
    return {"kind": kind, "message": message, "traceback": user_traceback(error)}


def headline(error: BaseException) -> str:
    if isinstance(error, BadEntrypoint):
        return str(error)
    if isinstance(error, SystemExit):
        return f"the training function called sys.exit({error.code!r}); return from it instead"
    while isinstance(cause := getattr(error, "cause", None), BaseException):
        error = cause  # Ray's wrapping of what a worker raised
    first_line = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first_line}".rstrip(": ")


def is_out_of_memory(error: BaseException) -> bool:
    """A CUDA or a host allocation that failed; torch's class is known by its name, so as not to import torch."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "out of memory" in str(error)


def place(error: BaseException, folder: str | None) -> str | None:
    """`file.py:line` of the innermost frame that is the user's own."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{os.path.basename(error.filename)}:{error.lineno}"  # noqa: PTH119 - a name, not a path
    frames = list(_user_frames(traceback.extract_tb(error.__traceback__)))
    own = [f for f in frames if folder and f.filename.startswith(folder)]
    last = (own or frames)[-1:]
    return f"{os.path.basename(last[0].filename)}:{last[0].lineno}" if last else None  # noqa: PTH119


def user_traceback(error: BaseException) -> str:
    """The whole traceback, causes included, without the frames that are Paceline's or the import system's."""
    told = traceback.TracebackException.from_exception(error)
    link: traceback.TracebackException | None = told
    while link is not None:
        link.stack = traceback.StackSummary.from_list(list(_user_frames(link.stack)))
        link = link.__cause__ or link.__context__
    return "".join(told.format())


def _user_frames(frames: traceback.StackSummary) -> Iterator[traceback.FrameSummary]:
    ours = os.path.dirname(describe.__code__.co_filename)  # noqa: PTH120 - as written in the code, wherever that was
    for frame in frames:
        if os.path.dirname(frame.filename) != ours and not frame.filename.startswith("<frozen importlib"):  # noqa: PTH120
            yield frame


def killed_by_kernel(ranks: str) -> dict[str, Any]:
    return {
        "kind": OUT_OF_MEMORY,
        "message": f"a worker process{ranks} was killed while the kernel killed for lack of memory on its node or in "
        "its container: give the workers more memory, or let them need less",
    }


def classify(error: BaseException, *, wanted: str, storage: str, kernel_killed: bool) -> dict[str, Any]:
    """What Ray Train's own error means, where no rank could say for itself.

    `wanted`: the gang, in words. `kernel_killed`: whether the kernel killed for memory where a silent worker ran.
    """
    told = list(_chain(error))
    names = {type(link).__name__ for link in told}
    text = " ".join(str(link) for link in told)
    if names & {"WorkerGroupStartupTimeoutError", "GangNotFormed"}:
        # Others were quicker to take what was free at the claim: nobody's failure, and no sign of a bad trial.
        return {"kind": PREEMPTED, "message": f"{wanted} did not come free together in time; nothing was started"}
    if any(getattr(link, "preempted", False) for link in told):
        return {"kind": PREEMPTED, "message": "a node of the workers was taken away"}
    if any(word in text for word in MEMORY_WORDS):
        return {
            "kind": OUT_OF_MEMORY,
            "message": f"a worker was ended because its node ran out of memory: {_line(text)}",
        }
    if names & DEATHS and kernel_killed:
        return {**killed_by_kernel(_ranks(error)), "traceback": text}
    if (lost := _why_lost(error, told)) is not None:
        return {"kind": LOST, "message": lost, "traceback": text}
    refused = next((link for link in told if isinstance(link, OSError)), None)
    message = headline(told[-1])
    if refused is not None:
        message = f"checkpoints cannot be stored at {storage}: {headline(refused)}; {MEND_STORAGE}"
    return {"kind": CANNOT_START, "message": message, "traceback": user_traceback(error)}


def _why_lost(error: BaseException, told: list[BaseException]) -> str | None:
    names = {type(link).__name__ for link in told}
    if of_another_cluster(error):
        return HEAD_ANEW
    if names & DEATHS:
        return f"a worker process died{_ranks(error)}; its log may say why"
    return f"Ray failed: {headline(told[-1])}" if names & RAYS_LOSSES else None


def of_another_cluster(error: BaseException) -> bool:
    """Whether Ray refuses this very process, whatever it asks: its head was killed and started anew."""
    return any(STRANGER in str(link) for link in _chain(error))


def as_sent(failure: dict[str, Any]) -> dict[str, Any]:
    """The failure with texts that the service can keep, however many ranks have failed."""
    told = {**failure, "message": storable(COLOURS.sub("", failure["message"]), MESSAGE_LENGTH)}
    if failure.get("traceback") is not None:
        told["traceback"] = storable(COLOURS.sub("", failure["traceback"]), TRACEBACK_LENGTH)
    ranks = failure.get("ranks", [])
    longest = min(TRACEBACK_LENGTH, RANKS_LENGTH // max(1, len(ranks)))
    told["ranks"] = [{**rank, "traceback": storable(rank["traceback"], longest)} for rank in ranks]
    return told


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and everything it wraps: causes, Ray's worker failures and controller failures."""
    seen: list[BaseException] = []
    waiting = [error]
    while waiting:
        link = waiting.pop()
        if any(link is known for known in seen):
            continue
        seen.append(link)
        yield link
        inside = [
            link.__cause__,
            getattr(link, "controller_failure", None),
            getattr(link, "health_check_failure", None),
        ]
        inside += list(getattr(link, "worker_failures", {}).values())
        waiting += [i for i in inside if isinstance(i, BaseException)]


def _ranks(error: BaseException) -> str:
    ranks = sorted(getattr(error, "worker_failures", {}))
    return f" (rank {', '.join(map(str, ranks))})" if ranks else ""


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
