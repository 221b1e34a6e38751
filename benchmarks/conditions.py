"""What a search finds where parameters exist under conditions only, one trial at a time.

`network` and `layers` are made-up losses of trainings: the first has an optimizer and a schedule with parameters of
their own, the second a width for each of up to five layers. `svm` and `classifiers` are the cross-validated errors of
scikit-learn's models, `svm` with its kernels and `classifiers` with five kinds of models. Peers are Optuna's samplers
in a function that suggests only what exists. Printed are the median losses, less the least one that any search of the
problem has found, after 20, 40 and 80 trials, and the loss at the end divided by that of HERE with the same seed: the
geometric mean with its 95 % bootstrap interval. Above 1 the other one is worse. `network` and `svm` were looked at when
the search was made, the others only afterwards.

    python -m benchmarks.conditions [--problems network svm layers classifiers] [--trials 40] [--seeds 12]
                                    [--first-seed 0] [--searchers "paceline gp" "paceline tpe, group" "optuna tpe" ...]
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.harness.ratios import geometric_mean
from benchmarks.harness.sequential import (
    Losses,
    Params,
    Searcher,
    SequentialTask,
    by_paceline,
    run_from_command_line,
)
from search.samplers import SamplerSpec
from search.samplers.optuna.ask import suggested
from search.space.space import Space

HERE = "paceline gp"
LEAST = 1e-3
"""Smaller distances from the least loss are equal."""
SHOWN = 20, 40, 80
SAMPLES = 500


def _log(low: float, high: float, kind: str = "float", **when: Any) -> dict[str, Any]:
    return {"type": kind, "low": low, "high": high, "log": True, "when": when}


def _linear(low: float, high: float, kind: str = "float", **when: Any) -> dict[str, Any]:
    return {"type": kind, "low": low, "high": high, "when": when}


def _choice(*choices: Any, **when: Any) -> dict[str, Any]:
    return {"type": "categorical", "choices": choices, "when": when}


NETWORK = {
    "rate": _log(1e-5, 1),
    "width": _log(8, 1024, "int"),
    "optimizer": _choice("sgd", "adam", "lamb"),
    "momentum": _linear(0, 0.99, optimizer="sgd"),
    "nesterov": _choice(False, True, optimizer="sgd"),
    "beta2": _log(0.001, 0.2, optimizer=["adam", "lamb"]),
    "decay": _log(1e-6, 0.3, optimizer=["adam", "lamb"]),
    "schedule": _choice("constant", "cosine", "step"),
    "warmup": _linear(0, 0.3, schedule="cosine"),
    "gamma": _linear(0.1, 0.9, schedule="step"),
    "every": _linear(1, 30, "int", schedule="step"),
}


def network(params: Params) -> float:
    rate, loss = math.log10(params["rate"]), 0.05 + 0.4 * math.exp(-math.log2(params["width"]) / 2.5)
    match params["optimizer"]:
        case "sgd":
            momentum = params["momentum"]
            best = -1 - 1.5 * momentum
            loss += 0.04 + 0.1 * (momentum - 0.9) ** 2 - 0.01 * params["nesterov"]
        case other:
            best = -3.0 if other == "adam" else -2.3
            loss += 0.02 * (math.log10(params["beta2"]) + 2.2) ** 2 + 0.01 * (math.log10(params["decay"]) + 2) ** 2
            loss += 0.01 * (other == "lamb")
    match params["schedule"]:
        case "constant":
            loss += 0.03
            best -= 0.3
        case "cosine":
            loss += 0.5 * (params["warmup"] - 0.08) ** 2
        case "step":
            loss += 0.01 + 0.05 * (params["gamma"] - 0.3) ** 2 + 0.0001 * (params["every"] - 18) ** 2
    return float(loss + min(0.06 * (rate - best) ** 2, 1.5))


LAYERS = {
    "layers": _linear(1, 5, "int"),
    **{f"width{n}": _log(4, 512, "int", **({"layers": {"min": n}} if n > 1 else {})) for n in range(1, 6)},
    "dropout": _linear(0, 0.6),
    "skip": _choice(False, True, layers={"min": 3}),
    "scale": _log(0.01, 1, skip=True),
    "rate": _log(1e-5, 0.3),
}


def layers(params: Params) -> float:
    count = params["layers"]
    widths = [math.log2(params[f"width{n}"]) for n in range(1, count + 1)]
    capacity = sum(widths) / 9
    loss = (
        0.03
        + 0.5 * math.exp(-0.7 * capacity)
        + 0.01 * sum((after - before + 0.7) ** 2 for before, after in pairwise(widths))
    )
    loss += 0.05 * max(0.0, 0.1 * capacity - params["dropout"]) + 0.2 * max(0.0, params["dropout"] - 0.12 * capacity)
    depth = 0.03 * max(0, count - 2) ** 1.5
    if params.get("skip"):
        depth *= 0.2 + 0.3 * (math.log10(params["scale"]) + 0.7) ** 2
    return float(loss + depth + min(1.0, 0.05 * (math.log10(params["rate"]) + 1.5 + 0.4 * count) ** 2))


SVM = {
    "C": _log(1e-3, 1e3),
    "kernel": _choice("linear", "rbf", "poly", "sigmoid"),
    "gamma": _log(1e-5, 10, kernel=["rbf", "poly", "sigmoid"]),
    "degree": _linear(2, 5, "int", kernel="poly"),
    "coef0": _linear(-1, 1, kernel=["poly", "sigmoid"]),
}


def svm(params: Params) -> float:
    return _error(SVC(**params, max_iter=20_000), *load_breast_cancer(return_X_y=True))


CLASSIFIERS = {
    "model": _choice("svm", "forest", "neighbours", "linear", "boosting"),
    "C": _log(1e-3, 1e3, model=["svm", "linear"]),
    "gamma": _log(1e-5, 1, model="svm"),
    "n_estimators": _log(5, 60, "int", model="forest"),
    "max_features": _linear(0.02, 1, model="forest"),
    "min_samples_leaf": _linear(1, 20, "int", model="forest"),
    "n_neighbors": _linear(1, 30, "int", model="neighbours"),
    "weights": _choice("uniform", "distance", model="neighbours"),
    "p": _linear(1, 4, model="neighbours"),
    "learning_rate": _log(0.01, 1, model="boosting"),
    "max_depth": _linear(1, 3, "int", model="boosting"),
}


def classifiers(params: Params) -> float:
    options = {name: value for name, value in params.items() if name != "model"}
    makers: Mapping[str, Callable[..., ClassifierMixin]] = {
        "svm": SVC,
        "forest": partial(RandomForestClassifier, random_state=0),
        "neighbours": KNeighborsClassifier,
        "linear": partial(LogisticRegression, max_iter=50),
        "boosting": partial(GradientBoostingClassifier, n_estimators=8, max_features=0.2, random_state=0),
    }
    return _error(makers[params["model"]](**options), *load_digits(return_X_y=True))


def _error(model: ClassifierMixin, inputs: NDArray[Any], labels: NDArray[Any]) -> float:
    chosen = np.random.default_rng(0).permutation(len(labels))[:SAMPLES]
    scores = cross_val_score(make_pipeline(StandardScaler(), model), inputs[chosen], labels[chosen], cv=3)
    return 1 - float(scores.mean())


TASKS = {
    "network": SequentialTask(NETWORK, network),
    "svm": SequentialTask(SVM, svm),
    "layers": SequentialTask(LAYERS, layers),
    "classifiers": SequentialTask(CLASSIFIERS, classifiers),
}


def by_optuna(
    sampler: Callable[..., optuna.samplers.BaseSampler], task: SequentialTask, seed: int, trials: int
) -> Losses:
    space, study, losses = Space.model_validate(task.space), optuna.create_study(sampler=sampler(seed=seed)), Losses()
    for _ in range(trials):
        trial = study.ask()
        losses.append(task.loss(space.draw(partial(suggested, trial))))
        study.tell(trial, losses[-1])
    return losses


SEARCHERS: dict[str, Searcher] = {
    HERE: partial(by_paceline, "gp"),
    "paceline auto": partial(by_paceline, "auto"),
    "paceline tpe, group": partial(by_paceline, SamplerSpec(sampler="tpe", options={"group": True})),
    "optuna tpe": partial(by_optuna, optuna.samplers.TPESampler),
    "optuna tpe, group": partial(by_optuna, partial(optuna.samplers.TPESampler, multivariate=True, group=True)),
    "optuna gp": partial(by_optuna, partial(optuna.samplers.GPSampler, warn_independent_sampling=False)),
    "random": partial(by_optuna, optuna.samplers.RandomSampler),
}


def report(name: str, searchers: Sequence[str], trials: int, seeds: Sequence[int]) -> None:
    task = TASKS[name]
    known = cache(lambda items: task.loss(dict(items)))
    cached = SequentialTask(task.space, lambda params: known(tuple(sorted(params.items()))))
    found = {}
    for searcher in searchers:
        losses = np.array([SEARCHERS[searcher](cached, seed, trials) for seed in seeds], dtype=float)
        found[searcher] = np.minimum.accumulate(losses, axis=1)
    least = min(float(one.min()) for one in found.values())
    shown = [count for count in SHOWN if count <= trials]
    print(f"\n{name}: least {least:.4f}; after {', '.join(map(str, shown))} trials", flush=True)
    beyond = {searcher: np.maximum(losses - least, LEAST) for searcher, losses in found.items()}
    for searcher, distances in beyond.items():
        medians = " ".join(f"{np.median(distances[:, count - 1]):8.4f}" for count in shown)
        ratio = geometric_mean(np.log(distances[:, -1] / beyond[HERE][:, -1])) if HERE in beyond else ""
        print(f"  {searcher:18} {medians}   {ratio}", flush=True)


if __name__ == "__main__":
    run_from_command_line(__doc__, TASKS, SEARCHERS, report, trials=40)
