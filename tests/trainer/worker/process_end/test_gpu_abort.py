"""What the output of a process that torch has ended says about the cause."""

from pathlib import Path

import pytest

from trainer.worker.process_end.gpu_abort import GpuAbort, find_gpu_abort

ASSERTION = 'IndexKernel.cu:111: Assertion `index < sizes[i] && "index out of bounds"` failed.'
WATCHDOG = "[rank0]:[E1127 04:18:39.7 ProcessGroupNCCL.cpp:2119] [Rank 0] Process group watchdog thread terminated with"
DEBUGGING = "For debugging consider passing CUDA_LAUNCH_BLOCKING=1"


def output(error: str) -> str:
    return f"{ASSERTION}\n{WATCHDOG} exception: {error}\n{DEBUGGING}\n"


@pytest.mark.parametrize(
    "error",
    [
        "CUDA error: device-side assert triggered",
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: misaligned address",
    ],
)
def test_an_error_of_the_code_is_found_with_the_lines_before_it(error: str, tmp_path: Path) -> None:
    log = tmp_path / "worker.err"
    log.write_text(output(error))
    found = find_gpu_abort({str(log): 0})
    assert found == GpuAbort(error, ASSERTION)
    assert found.describe("the process")[0].startswith(f"{error}: torch ended the process, because")


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "CUDA error: device-side assert triggered\n",
        output("CUDA error: uncorrectable ECC error encountered"),
        output("NCCL error: remote process exited or there was a network error"),
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1) ran for 600000 milliseconds\n",
    ],
)
def test_a_loss_stays_a_loss(printed: str, tmp_path: Path) -> None:
    log = tmp_path / "worker.err"
    log.write_text(printed)
    assert find_gpu_abort({str(log): 0}) is None


def test_the_output_of_an_earlier_trial_in_the_same_process_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "worker.err"
    earlier = output("CUDA error: device-side assert triggered")
    log.write_text(earlier + "killed\n")
    assert find_gpu_abort({str(log): len(earlier)}) is None
