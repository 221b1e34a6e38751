"""From trial to trial: from the last line of one trial's training function to the first line of the next trial's.

The function only reports, so all elapsed time is its runner's. The runners are Paceline with warm worker processes and
with fresh ones, Ray Tune over Ray Train, and `fit()` in a loop; they run one after the other on this machine.

    python -m benchmarks.turnaround [--trials 20] [--workers 2] [--runners warm cold tune fit]
"""

import argparse
import time

from benchmarks.harness.figures import OURS, load, machine, show
from benchmarks.harness.gpus import add_worker_options, worker_count
from benchmarks.harness.runs import Spec, exit_cleanly_on_signals, run_on_paceline, run_on_peer
from benchmarks.harness.trials import Run

NAMES = {
    "warm": OURS,
    "cold": "Paceline, fresh workers for each trial",
    "tune": "Ray Tune + Ray Train",
    "fit": "fit() in a loop",
}


def spec(trials: int, workers: int, *, gpu: bool, reuse: bool) -> Spec:
    return {
        "name": "turnaround",
        "space": {"x": {"type": "float", "low": 0.0, "high": 1.0}},
        "config": {"reports": 5},
        "objectives": [{"metric": "quality", "direction": "maximize"}],
        "search": {"sampler": "tpe", "seed": 7},
        "trainer": {
            "kind": "torch",
            "entrypoint": "trivial:train_fn",
            "scaling": {"num_workers": workers, "use_gpu": gpu, "resources_per_worker": {"CPU": 1}},
            "reuse_workers": reuse,
        },
        "limits": {"max_trials": trials, "parallelism": 1},
        "step_metric": "step",
    }


def run(runner: str, options: argparse.Namespace) -> Run:
    wanted = spec(options.trials, options.workers, gpu=options.gpu, reuse=runner != "cold")
    began = time.monotonic()
    found = run_on_paceline(wanted) if runner in {"warm", "cold"} else run_on_peer(runner, wanted)
    took = time.monotonic() - began
    print(
        f"  {NAMES[runner]}: {len(found.trials)} trials; {took:.0f} s including the start of everything; {load()}",
        flush=True,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    add_worker_options(parser)
    parser.add_argument("--runners", nargs="+", choices=NAMES, default=list(NAMES))
    options = parser.parse_args()
    options.workers = worker_count(options)
    exit_cleanly_on_signals()
    print(f"turnaround: {options.trials} trials x {options.workers} workers\n{machine()}", flush=True)
    found = {NAMES[runner]: run(runner, options) for runner in options.runners}
    show("last line of one trial to the first of the next", {name: run.gaps for name, run in found.items()})
    show("submission to the first line", {name: [run.trials[0].first - run.began] for name, run in found.items()})
    show("the whole time", {name: [run.seconds] for name, run in found.items()})
    waits = {name: [wait for trial in run.trials for wait in trial.waits] for name, run in found.items()}
    show("ray.train.report() to its return; with Paceline, that is with the decision", waits)


if __name__ == "__main__":
    main()
