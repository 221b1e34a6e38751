"""How a worker process has ended itself, whatever the way."""

from collections.abc import Mapping

from trainer.worker.process_end.crash_signal import UserCrash, find_user_crash
from trainer.worker.process_end.exit_code import OwnExit, read_exit_code
from trainer.worker.process_end.gpu_abort import GpuAbort, find_gpu_abort

OwnEnd = OwnExit | GpuAbort | UserCrash


def read_own_end(exit_file: str | None, output_began: Mapping[str, int]) -> OwnEnd | None:
    """How the dead process has ended itself, on its node. None if it was killed.

    `output_began` has where, in bytes, its output of this attempt begins in each file.
    """
    return read_exit_code(exit_file) or find_gpu_abort(output_began) or find_user_crash(output_began)
