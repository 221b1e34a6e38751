"""The alternatives to Paceline: the same spec on Ray Tune over Ray Train, or with `fit()` in a loop.

Started by benchmarks/harness/runs.py in a process of its own: `python -m benchmarks.harness.peers tune|fit HOME CPUS`.
It reads HOME/spec.json, an experiment's spec as Paceline takes it, and writes HOME/run.json, the times of the run.
"""

import importlib
import json
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import ray
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from ray import tune
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.tune.integration.ray_train import TuneReportCallback
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search.optuna import OptunaSearch

Spec = dict[str, Any]
MODES = {"maximize": "max", "minimize": "min"}


def by_tune(spec: Spec, home: Path) -> None:
    """Run a Tuner over a function that calls `fit()`, as in Ray's documentation, with its fastest settings."""
    objective, limits = spec["objectives"][0], spec["limits"]
    metric, mode = objective["metric"], MODES[objective["direction"]]

    def drive(config: dict[str, Any]) -> None:
        _fit(spec, config, home, [TuneReportCallback()])

    rule = spec.get("early_stopping", {"rule": "none"})
    search = OptunaSearch(
        metric=metric, mode=mode, seed=spec["search"]["seed"], points_to_evaluate=spec.get("enqueue") or None
    )
    tuner = tune.Tuner(
        drive,
        param_space=spec["config"] | {name: _domain(of) for name, of in spec["space"].items()},
        tune_config=tune.TuneConfig(
            num_samples=limits["max_trials"],
            max_concurrent_trials=limits["parallelism"],
            search_alg=search,
            scheduler=_scheduler(rule, metric, mode, spec["step_metric"]),
            # A reused actor of a stopped trial fails, because Ray Train's `fit()` still runs in it.
            reuse_actors=rule["rule"] == "none",
        ),
        run_config=tune.RunConfig(name="bench", storage_path=str(home / "tune"), verbose=0),
    )
    if errors := tuner.fit().errors:
        raise RuntimeError(f"{len(errors)} trials failed; the first: {errors[0]}")


def by_fit(spec: Spec, home: Path) -> None:
    """Call `fit()` in a loop, with random configurations."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=spec["search"]["seed"]))
    space = {name: _distribution(of) for name, of in spec["space"].items()}
    for _ in range(spec["limits"]["max_trials"]):
        _fit(spec, spec["config"] | study.ask(space).params, home, [])


PEERS: dict[str, Callable[[Spec, Path], None]] = {"tune": by_tune, "fit": by_fit}


def _fit(spec: Spec, config: dict[str, Any], home: Path, callbacks: list[Any]) -> None:
    module, _, function = spec["trainer"]["entrypoint"].partition(":")
    TorchTrainer(
        getattr(importlib.import_module(module), function),
        train_loop_config=config,
        scaling_config=ScalingConfig(**spec["trainer"]["scaling"]),
        run_config=RunConfig(name=uuid.uuid4().hex, storage_path=str(home / "train"), callbacks=callbacks),
    ).fit()


def _scheduler(rule: dict[str, Any], metric: str, mode: str, step_metric: str) -> TrialScheduler:
    if rule["rule"] == "none":
        return FIFOScheduler()
    # It stops trials that reach `max_t`. That must not be the last step, at which a trial ends by itself.
    return ASHAScheduler(
        time_attr=step_metric,
        metric=metric,
        mode=mode,
        max_t=10**6,
        grace_period=rule["min_step"],
        reduction_factor=rule["reduction_factor"],
    )


def _domain(of: dict[str, Any]) -> Any:
    low, high = of["low"], of["high"]
    if of["type"] == "int":
        return tune.qrandint(low, high, of.get("step", 1))
    return tune.loguniform(low, high) if of.get("log") else tune.uniform(low, high)


def _distribution(of: dict[str, Any]) -> BaseDistribution:
    kind = {"int": IntDistribution, "float": FloatDistribution}[of["type"]]
    options = {name: value for name, value in of.items() if name != "type"}
    return kind(**options)


@ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
def pause() -> None:
    time.sleep(1)


def main() -> None:
    peer, home, cpus = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    spec = json.loads((home / "spec.json").read_text())
    # Without its dashboard, Ray never frees the workers of a trial that Tune stops.
    ray.init("local", num_cpus=cpus, include_dashboard=True, dashboard_port=0, _temp_dir=str(home / "ray"))
    ray.get([pause.remote() for _ in range(cpus)])  # Ray starts its worker processes now, not during the trials
    began = time.monotonic()
    PEERS[peer](spec, home)
    times = {"began": began, "ended": time.monotonic()}
    ray.shutdown()
    (home / "run.json.new").write_text(json.dumps(times))
    (home / "run.json.new").rename(home / "run.json")


if __name__ == "__main__":
    main()
