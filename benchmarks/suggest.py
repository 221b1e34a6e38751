"""The duration of a proposal by the length of the history: Paceline's search and Optuna on each of its storages.

All use TPE with the same options and the same finished trials of ten parameters. Each is asked for a trial, the trial
ends, and the next one is asked for. Optuna's gRPC proxy runs in front of a copy of its SQLite storage. Printed are the
medians of some asks, and how many times longer the others take. Optuna's storages are filled in bulk
(`benchmarks/harness/histories.py`), which trial by trial takes minutes. The service itself is measured last, with the
largest number of finished trials: start, latency and memory (`benchmarks/large_experiment.py`).

    python -m benchmarks.suggest [--trials 10 100 1000 10000] [--asks 7]
"""

import argparse
import importlib.util
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import BaseStorage, GrpcStorageProxy, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from benchmarks.harness.histories import filled
from benchmarks.large_experiment import RUNS, measure_service
from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Params, Space
from search.study import Study, StudyView
from service.stack.child_process import ChildProcess
from service.stack.ports import free_port

HOST = "127.0.0.1"
STUDY = "history"
SEED = 7
DISTRIBUTIONS: dict[str, BaseDistribution] = {
    **{f"rate{index}": FloatDistribution(1e-4, 1.0, log=True) for index in range(4)},
    **{f"share{index}": FloatDistribution(0.0, 1.0) for index in range(4)},
    "layers": IntDistribution(1, 64),
    "optimizer": CategoricalDistribution(["sgd", "adamw", "lion"]),
}
SPACE = Space.model_validate(
    {
        **{f"rate{index}": {"type": "float", "low": 1e-4, "high": 1.0, "log": True} for index in range(4)},
        **{f"share{index}": {"type": "float", "low": 0.0, "high": 1.0} for index in range(4)},
        "layers": {"type": "int", "low": 1, "high": 64},
        "optimizer": {"type": "categorical", "choices": ["sgd", "adamw", "lion"]},
    }
)

Ask = Callable[[], Params]
Tell = Callable[[Params], None]


def history(count: int) -> list[Params]:
    chance = random.Random(SEED)  # noqa: S311
    return [_drawn(chance) for _ in range(count)]


def _drawn(chance: random.Random) -> Params:
    return {
        **{f"rate{index}": 10 ** chance.uniform(-4, 0) for index in range(4)},
        **{f"share{index}": chance.random() for index in range(4)},
        "layers": chance.randint(1, 64),
        "optimizer": chance.choice(["sgd", "adamw", "lion"]),
    }


def score(params: Params) -> float:
    return sum(value for value in params.values() if isinstance(value, float))


def callables_of_paceline(known: list[Params]) -> tuple[Ask, Tell]:
    study = Study(Problem(SPACE, ("minimize",)), SamplerSpec(seed=SEED), SEED)
    view = StudyView(study, [_observed(number, params) for number, params in enumerate(known)])
    number = len(known)

    def tell(params: Params) -> None:
        nonlocal number
        view.update([_observed(number, params)])
        number += 1

    return lambda: view.propose([], number), tell


def _observed(number: int, params: Params) -> Observation:
    return Observation(number, params, "completed", (score(params),), 1, score(params))


def study_in(storage: BaseStorage, known: list[Params]) -> optuna.Study:
    return filled(storage, STUDY, DISTRIBUTIONS, [(one, score(one)) for one in known])


def callables_of_optuna(study: optuna.Study) -> tuple[Ask, Tell]:
    study.sampler = optuna.samplers.TPESampler(seed=SEED)
    asked: list[optuna.Trial] = []

    def ask() -> Params:
        asked.append(study.ask(DISTRIBUTIONS))
        return dict(asked[-1].params)

    def tell(params: Params) -> None:
        study.tell(asked[-1], score(params))

    return ask, tell


def median_ms(ask: Ask, tell: Tell, asks: int) -> float:
    taken = []
    for _ in range(asks + 1):
        start = time.perf_counter()
        params = ask()
        taken.append((time.perf_counter() - start) * 1e3)
        tell(params)
    return statistics.median(taken[1:])  # the first ask has one-time costs


@contextmanager
def grpc_proxy(database: Path) -> Iterator[BaseStorage]:
    port = free_port()
    code = (
        f"import optuna; optuna.storages.run_grpc_proxy_server("
        f"optuna.storages.RDBStorage('sqlite:///{database}'), host={HOST!r}, port={port})"
    )
    child = ChildProcess(lambda: [sys.executable, "-c", code], dict(os.environ), database.with_suffix(".log"))
    child.start()
    try:
        proxy = GrpcStorageProxy(host=HOST, port=port)
        proxy.wait_server_ready(timeout=60)
        yield proxy
    finally:
        child.kill()


@contextmanager
def studies(home: Path, known: list[Params]) -> Iterator[dict[str, optuna.Study]]:
    database, copy = home / "optuna.db", home / "proxied.db"
    found = {
        "Optuna in memory": study_in(InMemoryStorage(), known),
        "Optuna, journal storage": study_in(JournalStorage(JournalFileBackend(str(home / "journal.log"))), known),
        "Optuna, RDB storage (SQLite)": study_in(RDBStorage(f"sqlite:///{database}"), known),
    }
    if importlib.util.find_spec("grpc") is None:
        print("Optuna's gRPC proxy is left out: pip install grpcio protobuf")
        yield found
        return
    shutil.copy(database, copy)
    with grpc_proxy(copy) as proxy:
        yield {**found, "Optuna, gRPC proxy (SQLite)": optuna.load_study(study_name=STUDY, storage=proxy)}


def compare(count: int, asks: int) -> None:
    known = history(count)
    ours = median_ms(*callables_of_paceline(known), asks)
    print(f"\n{count} finished trials\n  {'Paceline':<30} {ours:8.1f} ms", flush=True)
    with tempfile.TemporaryDirectory(prefix="paceline-suggest-") as home, studies(Path(home), known) as others:
        for name, study in others.items():
            theirs = median_ms(*callables_of_optuna(study), asks)
            print(f"  {name:<30} {theirs:8.1f} ms   {theirs / ours:5.1f} x as long", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--asks", type=int, default=7, help="number of timed asks")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    for count in options.trials:
        compare(count, options.asks)
    measure_service(max(options.trials), RUNS)


if __name__ == "__main__":
    main()
