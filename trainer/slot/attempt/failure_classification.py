"""Why an attempt failed, where no rank has reported it: what the errors of Ray Train mean."""

import re
import traceback
from collections.abc import Collection
from typing import Any

from trainer.client.errors import CallRefused, ServiceFailed
from trainer.open_file_limit import open_file_advice
from trainer.ray_train.checkpoints.file_copy import ELSEWHERE_ADVICE
from trainer.ray_train.ray_errors import (
    DEATHS,
    NO_STATE,
    NOT_SET_UP,
    NOT_STARTED,
    PREEMPTION,
    RAY_FAILURES,
    STORAGE_FILES,
    STORAGE_STATE,
)
from trainer.storable_values import storable_text
from trainer.worker.failures import (
    CANNOT_START,
    LOST,
    MEMORY_MONITOR_WORDS,
    OUT_OF_MEMORY,
    PREEMPTED,
    STORAGE_ADVICE,
    USER_ERROR,
    Failure,
    chain,
    headline,
    is_from_restarted_head,
)
from trainer.worker.user_code.user_frames import user_traceback

# The longest texts that are sent, in characters.
MAX_MESSAGE = 2_000
MAX_TRACEBACK = 100_000
MAX_RANK_TRACEBACKS = 400_000
"""The longest text of all ranks' tracebacks together."""

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""The escape sequences by which Ray colours its errors."""

CREATION_FAILED = re.compile(
    r"raised in its creation task.*\bStorageContext\b.*^(\w*Error: .*?)$", re.DOTALL | re.MULTILINE
)
"""What Ray tells of a controller that could not use the storage: one that went away after the slot had checked it."""

OUTPUT_FOLLOWS = re.compile(r"Last \d+ lines of stdout:|Failed to install conda environment .*:\s+Output:")
"""The words before the output of a command in Ray's description of its failure."""

RAISED = re.compile(r"\w*(Error|Exception)\b.*:")
"""The beginning of an error of conda's, or of one that Ray has raised itself."""

TOO_SLOW = re.compile(r"Failed to install runtime_env within the timeout of (\d+) seconds")
"""What Ray says of an installation that took too long."""

OUTPUT_LINES = 30

LIBRARY_ADVICE = (
    "the library of the trainer's kind has to be installed on every node, in the environment that runs Ray (and in a "
    "conda environment of trainer.runtime_env)"
)

HEAD_RESTARTED = "the Ray head was restarted, and its new cluster does not know the processes of the former one"


def classify(error: BaseException, *, workers: str, storage: str, has_oom_kill: bool) -> Failure:
    """What Ray Train's own error means, where no rank reported a failure.

    `workers` describes the worker group. `has_oom_kill`: whether the kernel killed for memory where a silent rank ran.
    """
    links = list(chain(error))
    names = {type(link).__name__ for link in links}
    text = " ".join(str(link) for link in links)
    if names & NOT_STARTED:
        # Others were quicker to take what was free at the claim. The trial did not cause that.
        return Failure(PREEMPTED, f"the resources of {workers} did not become free in time; nothing was started")
    if PREEMPTION in names or any(getattr(link, "preempted", False) for link in links):
        return Failure(PREEMPTED, "a node that the workers ran on was preempted")
    if any(word in text for word in MEMORY_MONITOR_WORDS):
        return Failure(OUT_OF_MEMORY, f"a worker was ended because its node ran out of memory: {_one_line(text)}")
    if names & DEATHS and has_oom_kill:
        return killed_by_kernel(_failed_ranks(error), text)
    if (loss := _loss(error, links, storage, text)) is not None:
        return loss
    own = _not_set_up(links) or _not_stored(error, links, storage) or _not_connected(error, links)
    return own or Failure(CANNOT_START, _not_started(headline(links[-1])), user_traceback(error))


def _not_started(why: str) -> str:
    """The library of the trainer's kind may be missing. Its name is not in the package's code."""
    is_missing = re.match(r"(ModuleNotFoundError|ImportError)\b", why) is not None
    return f"{why}; {LIBRARY_ADVICE}" if is_missing else why


def _loss(error: BaseException, links: list[BaseException], storage: str, text: str) -> Failure | None:
    """The death of a part of Ray or of a worker; of the controller also because it could not use the storage."""
    reason = _why_lost(error, links)
    if reason is None:
        return None
    if unused := CREATION_FAILED.search(COLOURS.sub("", text)):
        reason = _not_storable(storage, _one_line(unused.group(1)))
    return Failure(LOST, reason, text)


def _not_stored(error: BaseException, links: list[BaseException], storage: str) -> Failure | None:
    """A loss: the storage may be away for a while, and an agent that cannot write to it gets no trial meanwhile."""
    if any(map(_is_of_foreign_state, links)):
        why = f"what Ray Train reads there is not its own ({headline(links[-1])}); {ELSEWHERE_ADVICE}"
        return Failure(LOST, f"checkpoints cannot be stored at {storage}: {why}", user_traceback(error))
    storage_error = next((link for link in links if isinstance(link, OSError)), None)
    if storage_error is None:
        return None
    why, shown = headline(storage_error), user_traceback(error)
    is_of_storage = any(STORAGE_FILES.search(text) for text in (*map(str, links), *map(_files_of, links)))
    return Failure(LOST, _not_storable(storage, why) if is_of_storage else _not_prepared(why), shown)


def _is_of_foreign_state(link: BaseException) -> bool:
    """Whether the storage has answered with something else, such as a page, where Ray Train keeps its state."""
    is_decoding = isinstance(link, ValueError) and STORAGE_STATE.search(_files_of(link)) is not None
    return type(link).__name__ == NO_STATE or is_decoding


def _not_connected(error: BaseException, links: list[BaseException]) -> Failure | None:
    """A loss, except where torch has waited for as long as it may: behind a firewall the next attempt would, too."""
    why = headline(links[-1])
    if not why.startswith("DistNetworkError") or "timed out" in why:
        return None
    return Failure(LOST, f"the workers could not be set up: {why}", user_traceback(error))


def _files_of(link: BaseException) -> str:
    """The source files that the exception has passed."""
    return " ".join(frame.filename for frame in traceback.extract_tb(link.__traceback__))


def _not_storable(storage: str, why: str) -> str:
    """A process that can open no more files cannot use the storage either, which is not to blame for that."""
    if open_file_advice(why, is_own=False) is not None:
        return _not_prepared(why)
    return f"checkpoints cannot be stored at {storage}: {why}; {STORAGE_ADVICE}"


def _not_prepared(why: str) -> str:
    return _with_advice(f"the workers could not be set up: {why}", is_own=False)


def _with_advice(message: str, *, is_own: bool) -> str:
    """`is_own`: as in `open_file_advice`."""
    advice = open_file_advice(message, is_own=is_own)
    return message if advice is None else f"{message}; {advice}"


def _not_set_up(links: list[BaseException]) -> Failure | None:
    """The failure of pip, uv or conda, with its own last lines. Ray's text begins with Ray's own traceback."""
    text = next((str(link) for link in links if type(link).__name__ == NOT_SET_UP), None)
    if text is None:
        return None
    output = COLOURS.sub("", OUTPUT_FOLLOWS.split(text)[-1])
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = "\n".join(lines[-OUTPUT_LINES:])
    return Failure(CANNOT_START, f"trainer.runtime_env could not be set up: {_one_line(_what_failed(lines))}", last)


def _what_failed(lines: list[str]) -> str:
    """The last errors of pip or uv, or else the last error of conda or of Ray with the lines that explain it."""
    if lines[-1:] == ["TimeoutError"] and (limit := TOO_SLOW.search(" ".join(lines))):
        return f"it took longer than trainer.runtime_env.config.setup_timeout_seconds ({limit[1]}): raise it"
    if errors := [line for line in lines if line.lower().startswith("error")]:
        return " ".join(errors[-2:])
    raised = [number for number, line in enumerate(lines) if RAISED.match(line)]
    return " ".join(lines[raised[-1] :] if raised else lines[-2:])


def killed_by_kernel(ranks: str, traceback: str | None) -> Failure:
    message = (
        f"a worker process{ranks} was killed, and the kernel's OOM killer was active on its node or in its "
        "container: give the workers more memory, or reduce their use of it"
    )
    return Failure(OUT_OF_MEMORY, message, traceback)


def undelivered(error: Exception) -> Failure:
    """The failure of an attempt whose report could not be delivered. Only a refusal is the user's to correct."""
    if isinstance(error, CallRefused) and not isinstance(error, ServiceFailed):
        return Failure(USER_ERROR, f"the service refused a report: {error.detail}", is_refusal=True)
    return Failure(LOST, f"a report could not be delivered: {headline(error)}")


def slot_failed(error: Exception) -> Failure:
    message = _with_advice(f"the process that ran it for the agent (its slot) failed: {headline(error)}", is_own=True)
    return Failure(LOST, message, user_traceback(error))


def to_json(failure: Failure, *, began: bool) -> dict[str, Any]:
    """The failure as `trainer.wire.Failure`, with texts of limited length, however many ranks have failed."""
    tracebacks = failure.rank_tracebacks
    longest = min(MAX_TRACEBACK, MAX_RANK_TRACEBACKS // max(1, len(tracebacks)))
    traceback = failure.traceback
    # Earlier versions of the service refuse a field that they do not know.
    missing = {"is_checkpoint_missing": True} if failure.is_checkpoint_missing else {}
    return {
        "kind": failure.kind,
        "message": _text(failure.message, MAX_MESSAGE),
        "began": began,
        "traceback": None if traceback is None else _text(traceback, MAX_TRACEBACK),
        "ranks": [{"rank": rank, "traceback": _text(text, longest)} for rank, text in tracebacks.items()],
        **missing,
    }


def _text(text: str, max_length: int) -> str:
    return storable_text(COLOURS.sub("", text), max_length)


def _why_lost(error: BaseException, links: list[BaseException]) -> str | None:
    names = {type(link).__name__ for link in links}
    if is_from_restarted_head(error):
        return HEAD_RESTARTED
    if NOT_SET_UP in names:
        return None
    if names & DEATHS:
        return f"a worker process died{_failed_ranks(error)}; its log may say why"
    return f"Ray failed: {headline(links[-1])}" if names & RAY_FAILURES else None


def _failed_ranks(error: BaseException) -> str:
    ranks = sorted(getattr(error, "worker_failures", {}))
    return f" ({describe_ranks(ranks)})" if ranks else ""


def describe_ranks(ranks: Collection[int]) -> str:
    """`rank 0`, `ranks 0, 1`."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
