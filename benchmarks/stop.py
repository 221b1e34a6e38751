"""A trial that ASHA stops: the time from the report that is answered `stop` to free workers, and to the next trial.

One trial leads. Each later trial loses at its first report, and would otherwise report for a minute. Its workers are
free when none of them runs the training function any more: the function returned or raised, or the process has ended.

    python -m benchmarks.stop [--trials 8] [--workers 2] [--runners paceline tune]
"""

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path

import psutil

from benchmarks.harness.figures import OURS, load, machine, show
from benchmarks.harness.runs import Spec, exit_cleanly_on_signals, run_on_paceline, run_on_peer
from benchmarks.harness.trials import Run, Trial

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
            "entrypoint": "endless:train_fn",
            "scaling": {"num_workers": options.workers, "resources_per_worker": {"CPU": 1}},
        },
        "limits": {"max_trials": options.trials, "parallelism": 1},
        "step_metric": "step",
    }


class Deaths:
    """Records when the training functions' processes end, by process id. Call it repeatedly."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}
        self._pids: dict[Path, int] = {}

    def __call__(self, folder: Path) -> None:
        for file in set(folder.iterdir()) - set(self._pids):
            if line := file.read_text().partition("\n")[0]:
                self._pids[file] = json.loads(line)["pid"]
        for pid in set(self._pids.values()) - set(self.at):
            if not _is_alive(pid):
                self.at[pid] = time.monotonic()


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def stopped_at(trial: Trial) -> float:
    """Return the time of the report that is answered `stop`, the first one."""
    return max(float(next(one["at"] for one in rank if one["event"] == "report")) for rank in trial.ranks)


def freed_at(trial: Trial, deaths: Deaths) -> float:
    """Return the time when no rank ran its function any more."""
    return max(rank[-1]["at"] if rank[-1]["event"] == "last" else deaths.at[rank[0]["pid"]] for rank in trial.ranks)


def run(runner: str, options: argparse.Namespace) -> tuple[Run, Deaths]:
    deaths = Deaths()
    found = run_on_paceline(spec(options)) if runner == "paceline" else run_on_peer(runner, spec(options), deaths)
    reports = [len(trial.reports) for trial in found.trials]
    print(f"  {NAMES[runner]}: {len(found.trials)} trials, which made {reports} reports; {load()}", flush=True)
    return found, deaths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=8, help="trials; the first one is not stopped")
    parser.add_argument("--workers", type=int, default=2, help="of each trial")
    parser.add_argument("--runners", nargs="+", choices=NAMES, default=list(NAMES))
    options = parser.parse_args()
    exit_cleanly_on_signals()
    print(f"stop: {options.trials} trials x {options.workers} workers\n{machine()}", flush=True)
    found = {NAMES[runner]: run(runner, options) for runner in options.runners}
    show(
        "the report that is answered stop to its workers being free",
        {
            name: [freed_at(trial, deaths) - stopped_at(trial) for trial in run.trials[1:]]
            for name, (run, deaths) in found.items()
        },
    )
    show(
        "the report that is answered stop to the first line of the next trial",
        {
            name: [after.first - stopped_at(trial) for trial, after in pairwise(run.trials[1:])]
            for name, (run, _) in found.items()
        },
    )


if __name__ == "__main__":
    main()
