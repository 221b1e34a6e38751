"""Environment variables of one experiment, seen from the workers of the next."""

from pathlib import Path

import pytest

from tests.trainer.fake_service import FakeService
from trainer.wire import Outcome

pytestmark = [pytest.mark.ray, pytest.mark.slow]

READS = """
import os
import pathlib

def train_fn(config):
    pathlib.Path(config["record"]).write_text(f"{os.environ.get('MY_TRIAL_VAR')} {os.environ.get('RAY_MY_TRIAL_VAR')}")
"""


def test_variables_of_an_experiment_do_not_reach_the_workers_of_the_next_one(
    service: FakeService, tmp_path: Path
) -> None:
    """One after the other on one agent, with what each may leave: a slot, workers, a prestarted process."""
    package = service.add_package(READS)
    seen = []
    for number, reuse in enumerate((True, True, False, False)):
        names = ("MY_TRIAL_VAR", "RAY_MY_TRIAL_VAR")
        variables = dict.fromkeys(names, str(number)) if number % 2 == 0 else {}
        trainer = {
            "entrypoint": "train:train_fn",
            "package": package,
            "scaling": {"num_workers": 1},
            "env": variables,
            "reuse_workers": reuse,
        }
        record = tmp_path / str(number)
        trial = service.add_trial(trainer, {"record": str(record)}, experiment=f"apart-{number}")
        assert service.finished(trial).outcome == Outcome.COMPLETED
        seen.append(record.read_text())
    assert seen == ["0 0", "None None", "2 2", "None None"]
