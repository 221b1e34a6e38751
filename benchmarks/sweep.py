"""A whole search: 32 networks on digits with ASHA; the time until it ends, and until one reaches 97 % accuracy.

Paceline and Ray Tune over Ray Train get the same function, space, sampler (Optuna's TPE), seed, rule, budget and number
of parallel trials. They do not draw the same configurations, so the trained epochs are printed, too.

    python -m benchmarks.sweep [--trials 32] [--workers 2] [--parallel 2] [--runners paceline tune]
"""

import argparse

from benchmarks.harness.figures import OURS, load, machine, show
from benchmarks.harness.gpus import add_worker_options, worker_count
from benchmarks.harness.runs import Spec, exit_cleanly_on_signals, run_on_paceline, run_on_peer
from benchmarks.harness.trials import Run

NAMES = {"paceline": OURS, "tune": "Ray Tune + Ray Train, OptunaSearch"}
GOAL = 0.97
EPOCHS = 20


def spec(options: argparse.Namespace) -> Spec:
    return {
        "name": "sweep",
        "space": {
            "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
            "hidden": {"type": "int", "low": 16, "high": 256, "step": 16},
            "dropout": {"type": "float", "low": 0.0, "high": 0.5},
        },
        "config": {"epochs": EPOCHS, "batch_size": 64},
        "objectives": [{"metric": "accuracy", "direction": "maximize"}],
        "search": {"sampler": "tpe", "seed": options.seed},
        "early_stopping": {"rule": "asha", "min_step": 2, "reduction_factor": 3},
        "trainer": {
            "kind": "torch",
            "entrypoint": "digits:train_fn",
            "scaling": {"num_workers": options.workers, "use_gpu": options.gpu, "resources_per_worker": {"CPU": 1}},
        },
        "limits": {"max_trials": options.trials, "parallelism": options.parallel},
        "step_metric": "epoch",
    }


def run(runner: str, options: argparse.Namespace) -> Run:
    found = run_on_paceline(spec(options)) if runner == "paceline" else run_on_peer(runner, spec(options))
    epochs = sum(len(trial.reports) for trial in found.trials)
    stopped = sum(len(trial.reports) < EPOCHS for trial in found.trials)
    best = max(report["metrics"]["accuracy"] for trial in found.trials for report in trial.reports)
    print(f"  {NAMES[runner]}: {len(found.trials)} trials, {stopped} of them stopped, {epochs} epochs, best {best:.4f}")
    print(f"    {load()}", flush=True)
    return found


def to_goal(found: Run) -> list[float]:
    """Return the seconds until the first report that reaches GOAL; [] if none does."""
    reports = [report for trial in found.trials for report in trial.reports]
    return sorted(one["at"] - found.began for one in reports if one["metrics"]["accuracy"] >= GOAL)[:1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=32)
    add_worker_options(parser)
    parser.add_argument("--parallel", type=int, default=2, help="concurrent trials")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--runners", nargs="+", choices=NAMES, default=list(NAMES))
    options = parser.parse_args()
    options.workers = worker_count(options)
    exit_cleanly_on_signals()
    print(
        f"sweep: {options.trials} trials x {options.workers} workers, {options.parallel} at once\n{machine()}",
        flush=True,
    )
    found = {NAMES[runner]: run(runner, options) for runner in options.runners}
    show("submission to the end", {name: [run.seconds] for name, run in found.items()})
    show(f"submission to {GOAL:.0%} accuracy", {name: to_goal(run) for name, run in found.items()})


if __name__ == "__main__":
    main()
