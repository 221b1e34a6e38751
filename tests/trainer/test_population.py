"""A population on a real Ray: an exploited trial continues with its donor's weights and other params."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.settings import Settings
from tests.conftest import Api, a_spec, changed, running
from tests.trainer.conftest import another_agent, until
from tests.trainer.fake_service import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)]

CODE = Path(__file__).parent / "user_code" / "population.py"
RATES = [0.4, 0.2, 0.01, 0.001]
FACTOR = 0.75
LR = RATES[0] * FACTOR


@pytest.fixture
def api(settings: Settings, ray_address: str) -> Iterator[Api]:
    """A service with an agent that works for it."""
    with (
        running(changed(settings, lease_seconds=PATIENCE_SECONDS)) as api,  # no attempt but those of the rule
        another_agent(str(api.http.base_url), "trainer", ray_address),
    ):
        yield api


def written(record: Path) -> set[tuple[int, float, str, int, float]]:
    """Rank, lr, what was done (`from` or `step`), step and weight."""
    lines = (line.split() for line in record.read_text().splitlines())
    return {(int(rank), float(lr), what, int(step), float(weight)) for rank, lr, what, step, weight in lines}


def weight_of(record: Path, lr: float, step: int) -> float:
    """The weight after the step, the same on both ranks."""
    [weight] = {one[4] for one in written(record) if one[1:4] == (lr, "step", step)}
    return weight


def test_an_exploited_trial_trains_on_with_the_donors_weights_and_its_new_params(api: Api, record: Path) -> None:
    package = api.post("/v1/packages", 201, params={"filename": "train.py"}, content=CODE.read_bytes())["id"]
    rule = {"rule": "pbt", "interval": 2, "max_step": 6, "resample_probability": 0, "perturbation_factors": [FACTOR]}
    spec = a_spec(
        space={"lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True}},
        config={"record": str(record)},
        objectives=[{"metric": "loss", "direction": "minimize"}],
        enqueue=[{"lr": rate} for rate in RATES],
        early_stopping=rule,
        trainer={"entrypoint": "train:train_fn", "package": package, "scaling": {"num_workers": 2}},
        limits={"max_trials": 4, "parallelism": 1},
        step_metric="step",
    )
    name = api.post("/v1/experiments", 201, json=spec)["name"]
    until(lambda: api.get(f"/v1/experiments/{name}")["status"] == "completed", "the population has trained", 500)

    best, second, third, worst = (api.get(f"/v1/trials/{one['id']}") for one in trials_of(api, name))
    assert [len(one["attempts"]) for one in (best, second, third, worst)] == [3, 3, 3, 3]
    assert [one["generations"] for one in (best, second)] == [[], []]
    for trial, milestone in ((worst, 2), (third, 4)):
        generation = trial["generations"][1]
        assert (generation["donor"], generation["milestone"], generation["params"]) == (0, milestone, {"lr": LR})
        assert Path(generation["resumed_from"]).is_relative_to(Path(best["checkpoint"]["uri"]).parents[1])
        inherited = weight_of(record, RATES[0], milestone)
        assert weight_of(record, RATES[trial["number"]], milestone) < inherited
        assert {(rank, LR, "from", milestone, inherited) for rank in (0, 1)} <= written(record)
    # Two steps with its donor's rate, and four with its own.
    assert worst["value"] == pytest.approx(0.2**2 * 0.4**4, rel=1e-3)
    assert worst["checkpoint"]["step"] == 6

    storage = Path(best["checkpoint"]["uri"]).parents[2]
    kept = {one["checkpoint"]["uri"] for one in (best, second, third, worst)}
    until(lambda: checkpoints_below(storage) == kept, "no more is kept")


def checkpoints_below(folder: Path) -> set[str]:
    """Works while directories are removed, at which `Path.rglob` fails."""
    return {found for found, _, _ in os.walk(folder) if Path(found).name.startswith("checkpoint_")}


def trials_of(api: Api, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"/v1/experiments/{name}/trials")["items"]
    return found
