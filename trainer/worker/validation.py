"""What a Ray task of its own does for each checkpoint to validate: it calls the user's validation function.

It travels to the task's process by value, as everything that runs on the cluster.
"""

import os
import sys
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ray

from trainer.ray_train.checkpoints.resumed_checkpoint import ResumedCheckpoint
from trainer.ray_train.processes.forked_children import detach_children_from_ray
from trainer.storable_values import json_metrics
from trainer.unused_folders import ScratchFolder
from trainer.worker.failures import (
    Failure,
    headline,
    kind_of,
    not_read,
    not_read_if_missing,
)
from trainer.worker.logs.masker import Masker
from trainer.worker.logs.sent_output import sending_output
from trainer.worker.user_code.user_code import enter_package, find_function, refusing_exit
from trainer.worker.user_code.user_frames import user_location, user_traceback
from trainer.worker.user_process import this_process

Validated = tuple[dict[str, Any] | None, dict[str, Any] | None]
"""The metrics, or else the fields of a `Failure`: an exception of the user's class could not be read in the slot."""


@dataclass(frozen=True)
class ValidationJob:
    """One validation. `checkpoint` is its URI; its output is sent as that of rank `log_rank`."""

    run: str
    slot: Any
    entrypoint: str
    package: Any | None
    package_name: str | None
    package_folder: str | None
    has_secrets: bool
    log_rank: int
    checkpoint: str
    fn_kwargs: Mapping[str, Any]


def validate(job: ValidationJob) -> Validated:
    """Call the function with the checkpoint; output, metrics and errors have no secrets."""
    detach_children_from_ray()
    secrets: dict[str, str] = ray.get(job.slot.secrets.remote(job.run)) if job.has_secrets else {}
    masker = Masker(secrets.values())
    # Asked by each process: Ray repeats the task in a new one if the process dies.
    start = uuid.uuid4().hex
    offset: int = ray.get(job.slot.validation_began.remote(job.run, start, asdict(this_process())))
    with sending_output(job.slot, job.run, job.log_rank, masker, offset=offset):
        os.environ.update(secrets)
        metrics, failure = _call(job)
        if failure is not None:
            sys.stderr.write(failure.traceback or "")
    return masker.mask_json(metrics), masker.mask_json(asdict(failure)) if failure is not None else None


def _call(job: ValidationJob) -> tuple[dict[str, Any] | None, Failure | None]:
    folder: Path | None = None
    is_importing, scratch = True, ScratchFolder()
    try:
        folder = enter_package(job.package, job.package_name, job.package_folder)
        function = find_function(job.entrypoint, folder)
        is_importing = False
        with refusing_exit():
            found = function(ResumedCheckpoint(job.checkpoint, not_read, scratch), **job.fn_kwargs)
        if not isinstance(found, dict):
            returned = type(found).__name__
            raise TypeError(f"the validation function returned {returned}; it must return a dict of metrics")  # noqa: TRY301
    except BaseException as raised:  # noqa: BLE001 - sys.exit() and worse are failures of the user's code
        error = not_read_if_missing(raised, job.checkpoint)
        location = user_location(error, str(folder) if folder else None)
        where = f"validation function {job.entrypoint}{', ' + location if location else ''}"
        kind = kind_of(error, is_importing=is_importing)
        return None, Failure(kind, f"{headline(error)} ({where})", user_traceback(error))
    finally:
        scratch.remove()
    return json_metrics(found)[0], None
