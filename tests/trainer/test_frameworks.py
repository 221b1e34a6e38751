"""Each kind of trainer runs several trials in a row with its real library.

The libraries are the extra `frameworks`. Without it these tests are skipped, except in CI.
"""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.trainer.fake_service import FakeService
from trainer.ray_train.trainer_kinds import BACKENDS
from trainer.wire import Kind, Outcome

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FUNCTIONS = Path(__file__).parent / "user_code" / "frameworks"
KINDS = [kind for kind in Kind if kind not in {Kind.EXTERNAL, Kind.COMMAND}]
"""Those with a training function; `test_command.py` has commands."""
TRIALS = 6
TRIALS_IN_NEW_PROCESSES = {Kind.JAX: 2, Kind.TENSORFLOW: 1}
"""Of kinds that are not warm: each trial has processes of its own, which jax shows. Importing TensorFlow takes each of
them ten seconds."""

LIBRARIES = {Kind.LIGHTNING: "lightning", Kind.TRANSFORMERS: "transformers"}
"""What the function needs beyond the library of the kind's backend."""

RANKS = {Kind.LIGHTGBM: 2}
"""LightGBM has a network of its own as soon as there are two workers."""


def needs(kind: Kind) -> None:
    missing = [name for name in (BACKENDS[kind.value].library, LIBRARIES.get(kind)) if name and not find_spec(name)]
    if missing and os.environ.get("CI"):
        pytest.fail(f"{missing[0]} is not installed: CI installs the extra `frameworks`")
    if missing:
        pytest.skip(f"{missing[0]} is not installed; `make test` installs the extra `frameworks`")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_trials_of_every_kind_run_in_a_row(service: FakeService, record: Path, kind: Kind) -> None:
    needs(kind)
    ranks, is_warm = RANKS.get(kind, 1), BACKENDS[kind.value].is_warm
    count = TRIALS if is_warm else TRIALS_IN_NEW_PROCESSES[kind]
    function = FUNCTIONS / f"with_{kind}.py"
    assert function.exists(), f"{function} must train with {kind}, as those beside it do with theirs"
    trainer = {
        "kind": kind.value,
        "entrypoint": "train:train_fn",
        "package": service.add_package(function.read_text()),
        "scaling": {"num_workers": ranks},
    }
    configs = [
        {"record": str(record), "lr": 0.1 * (i + 1), "seed": i, "precision": ("no", "bf16")[i % 2]}
        for i in range(count)
    ]
    trials = [service.add_trial(trainer, config, experiment=f"x-{kind}") for config in configs]
    ends = [service.finished(trial) for trial in trials]
    assert [end.error and end.error.message for end in ends] == [None] * count
    assert {end.outcome for end in ends} == {Outcome.COMPLETED}
    assert [len(service.reports[trial]) >= 2 for trial in trials] == [True] * count
    processes = record.read_text().split()
    assert len(processes) == count * ranks
    assert len(set(processes)) == (ranks if is_warm else count * ranks)
