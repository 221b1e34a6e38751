"""A trial that ASHA stops: from the report that is answered `stop` to free workers, and to the next trial.

One trial leads; each after it loses at its first report and would otherwise report on for a minute. Its workers are
free when none of them runs its training function any more: the function was left, or the process is gone.

    python -m benchmarks.stop [--trials 8] [--workers 2] [--runners paceline tune]
"""

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path

import psutil

from benchmarks.figures import OURS, load, machine, show
from benchmarks.runs import Spec, end_cleanly, on_paceline, on_peer
from benchmarks.trials import Run, Trial

NAMES = {"paceline": OURS, "tune": "Ray Tune + Ray Train"}


def spec(options: argparse.Namespace) -> Spec:
    return {
        "name": "stop",
        "space": {"quality": {"type": "float", "low": 0.0, "high": 1.0}},
        "objectives": [{"metric": "quality", "direction": "maximize"}],
        "search": {"sampler": "tpe", "seed": 7},
        "enqueue": [{"quality": 1 / number} for number in range(1, options.trials + 1)],
        "early_stopping": {"rule": "asha", "min_step": 1, "reduction_factor": 3},
        "trainer": {
            "kind": "torch",
            "entrypoint": "losing:train_fn",
            "scaling": {"num_workers": options.workers, "resources_per_worker": {"CPU": 1}},
        },
        "limits": {"max_trials": options.trials, "parallelism": 1},
        "step_metric": "step",
    }


class Deaths:
    """Sees the training functions' processes go: `at` has when, by process id, as often as it is called."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}
        self._pids: dict[Path, int] = {}

    def __call__(self, marks: Path) -> None:
        for file in set(marks.iterdir()) - set(self._pids):
            if line := file.read_text().partition("\n")[0]:
                self._pids[file] = json.loads(line)["pid"]
        for pid in set(self._pids.values()) - set(self.at):
            if not _lives(pid):
                self.at[pid] = time.monotonic()


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def told(trial: Trial) -> float:
    """When it made the report that is answered `stop`: its first one."""
    return max(float(next(mark["at"] for mark in rank if mark["mark"] == "report")) for rank in trial.ranks)


def freed(trial: Trial, deaths: Deaths) -> float:
    """When no rank ran its function any more."""
    return max(rank[-1]["at"] if rank[-1]["mark"] == "last" else deaths.at[rank[0]["pid"]] for rank in trial.ranks)


def run(runner: str, options: argparse.Namespace) -> tuple[Run, Deaths]:
    deaths = Deaths()
    found = on_paceline(spec(options)) if runner == "paceline" else on_peer(runner, spec(options), deaths)
    reports = [len(trial.reports) for trial in found.trials]
    print(f"  {NAMES[runner]}: {len(found.trials)} trials, which made {reports} reports; {load()}", flush=True)
    return found, deaths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=8, help="of which the first is not stopped")
    parser.add_argument("--workers", type=int, default=2, help="of each trial")
    parser.add_argument("--runners", nargs="+", choices=NAMES, default=list(NAMES))
    options = parser.parse_args()
    end_cleanly()
    print(f"stop: {options.trials} trials x {options.workers} workers\n{machine()}", flush=True)
    found = {NAMES[runner]: run(runner, options) for runner in options.runners}
    show(
        "the report that is answered stop to its workers being free",
        {
            name: [freed(trial, deaths) - told(trial) for trial in run.trials[1:]]
            for name, (run, deaths) in found.items()
        },
    )
    show(
        "the report that is answered stop to the first line of the next trial",
        {
            name: [after.first - told(trial) for trial, after in pairwise(run.trials[1:])]
            for name, (run, _) in found.items()
        },
    )


if __name__ == "__main__":
    main()
