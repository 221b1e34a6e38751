"""Whether torch has ended a worker process because of an error of the user's code on its GPU.

An index out of range on a GPU ends all work of the process there. Torch finds that out later: at the next call that
waits for the GPU, or in the thread that watches NCCL, which ends the whole process (torch's `ProcessGroupNCCL`). For
Ray, such a process is lost like one that was killed. It leaves the error in its output only.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainer.worker.logs.output_end import read_output_end

WATCHDOG = re.compile(r"Process group watchdog thread terminated with exception: (CUDA error: .*)")

ERRORS_OF_CODE = (
    "device-side assert",
    "illegal memory access",
    "misaligned address",
    "illegal instruction",
    "invalid program counter",
    "invalid address space",
)
"""The errors (of CUDA's `cudaError`) that a kernel of the program causes. Others may come from the GPU itself."""

SHOWN_LINES = 30


@dataclass(frozen=True)
class GpuAbort:
    """`error` is CUDA's message; `output` has the last lines before it, such as the assertion that failed."""

    error: str
    output: str

    def describe(self, process: str) -> tuple[str, str]:
        """The failure in one line, which names `process`, and what is known of where it happened."""
        return f"{self.error}: torch ended {process}, because its code had made an error on the GPU", self.output


def find_gpu_abort(positions: Mapping[str, int]) -> GpuAbort | None:
    """Look for it in each file of a dead process's output, after the position in bytes."""
    for path, position in positions.items():
        output = read_output_end(path, position)
        found = WATCHDOG.search(output)
        if found is not None and any(error in found[1] for error in ERRORS_OF_CODE):
            lines = output[: found.start()].splitlines()[-SHOWN_LINES - 1 : -1]  # the last one is cut
            return GpuAbort(found[1].strip(), "\n".join(lines))
    return None
