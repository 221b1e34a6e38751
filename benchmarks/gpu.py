"""What becomes of a GPU between trials: process groups, memory, also after a trial that asked for too much, and halves.

Two experiments run on a stack as `paceline up` starts it. In the first one, trials follow each other on one warm worker
group: each makes a process group (NCCL), fills memory, and every tenth fails for want of memory. In the second one,
trials take half a GPU each, two at a time. The GPUs' MIG mode is read before and after.

    python -m benchmarks.gpu [--trials 100] [--workers 1] [--cpu]

`--cpu` runs the same without a GPU, with gloo, to try this program.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from benchmarks.harness.figures import machine, show, shown
from benchmarks.harness.gpus import gpu_count, mig_modes
from benchmarks.harness.runs import Spec, exit_cleanly_on_signals, run_on_paceline
from benchmarks.harness.trials import Run

MEGABYTES = 512
FAILS_EVERY = 10
HALVES, SECONDS = 4, 5.0
"""How many trials take half a GPU, and how long each of them computes."""


def groups_spec(trials: int, workers: int, *, gpu: bool) -> Spec:
    return _spec(
        "groups",
        "gpu:remake_group",
        {"num_workers": workers, "use_gpu": gpu, "resources_per_worker": {"CPU": 1}},
        config={"megabytes": MEGABYTES if gpu else 1, "fails_every": FAILS_EVERY},
        enqueue=[{"number": number} for number in range(trials)],
        space={"number": {"type": "int", "low": 0, "high": trials}},
        limits={"max_trials": trials, "parallelism": 1},
    )


def halves_spec(*, gpu: bool) -> Spec:
    half = {"CPU": 1, "GPU": 0.5} if gpu else {"CPU": 1}
    return _spec(
        "halves",
        "gpu:share",
        {"num_workers": 1, "use_gpu": gpu, "resources_per_worker": half},
        config={"seconds": SECONDS},
        space={"number": {"type": "int", "low": 0, "high": HALVES}},
        limits={"max_trials": HALVES, "parallelism": 2},
    )


def _spec(name: str, entrypoint: str, scaling: dict[str, Any], **fields: Any) -> Spec:
    return {
        "name": name,
        "objectives": [{"metric": "sum", "direction": "maximize"}],
        "search": {"sampler": "random", "seed": 7},
        "trainer": {"kind": "torch", "entrypoint": entrypoint, "scaling": scaling},
        "failures": {"max_retries": 0},
        **fields,
    }


def show_groups(run: Run, workers: int) -> None:
    """Print how the memory of the GPU is when a trial begins, and how long the next trial takes to begin."""
    first_reports = [trial.reports[0]["metrics"] for trial in run.trials]
    used = [float(one["used"]) for one in first_reports]
    after_failure = used[FAILS_EVERY::FAILS_EVERY]
    processes = len({rank[0]["pid"] for trial in run.trials for rank in trial.ranks})
    complete = sum(one["ranks"] == workers for one in first_reports)
    print(f"\n{len(run.trials)} trials on {workers} workers, in {processes} processes; {complete} complete groups")
    print(f"  memory used at a trial's first line (MB): first {used[0]:.0f}, others {_range(used[1:])}", flush=True)
    print(f"  of these after a trial that ran out of memory: {_range(after_failure)}")
    gaps = [second.first - first.last for first, second in pairwise(run.trials) if first.last is not None]
    failed = range(FAILS_EVERY - 1, len(gaps), FAILS_EVERY)
    show(
        "last line of one trial to the first of the next",
        {
            "after a trial that completed": [gap for number, gap in enumerate(gaps) if number not in failed],
            "after one that ran out of memory": [gaps[number] for number in failed],
        },
    )


def show_halves(run: Run) -> None:
    spans = [(trial.first, trial.last) for trial in run.trials if trial.last is not None]
    overlaps = [max(0.0, first[1] - second[0]) for first, second in pairwise(spans)]
    print(f"\n{len(spans)} trials with half a GPU each; a trial runs beside the next one for {shown(overlaps)}")


def _range(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})" if values else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--workers", type=int, default=0, help="of each trial; as many as there are GPUs, at most 8")
    parser.add_argument("--gpu", action="store_true", help="the default, so that one ARGS serves all benchmarks")
    parser.add_argument("--cpu", action="store_true", help="try this program without a GPU")
    options = parser.parse_args()
    found = gpu_count()
    if not found and not options.cpu:
        sys.exit("nvidia-smi shows no GPU; --cpu tries this program without one")
    exit_cleanly_on_signals()
    workers = options.workers or (2 if options.cpu else min(found, 8))
    print(f"gpu: {found} GPUs, MIG {mig_modes() or 'unknown'}\n{machine()}", flush=True)
    show_groups(run_on_paceline(groups_spec(options.trials, workers, gpu=not options.cpu)), workers)
    show_halves(run_on_paceline(halves_spec(gpu=not options.cpu)))
    print(f"MIG afterwards: {mig_modes() or 'unknown'}")


if __name__ == "__main__":
    main()
