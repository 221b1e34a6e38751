"""A stack as `paceline up` starts it, on a machine with an NVIDIA GPU."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.cli.client.client import Client
from service.cli.code_archive import packed
from tests.e2e.conftest import Stack, running_stack, until

USER_CODE = Path(__file__).parent / "user_code"
TRIALS_SECONDS = 300


@dataclass
class Trials:
    """Experiments on the stack. `lines` are what the training functions wrote, by the number of the trial."""

    stack: Stack
    record: Path

    def submit(self, name: str, actions: list[str], code: Path = USER_CODE, **fields: Any) -> None:
        """One trial for each action, one after another."""
        scaling = {"num_workers": 1, "use_gpu": True, **fields.pop("scaling", {})}
        trainer = {"kind": "torch", "entrypoint": "train:train_fn", "scaling": scaling, **fields.pop("trainer", {})}
        spec = {
            "name": name,
            "objectives": [{"metric": "loss", "direction": "minimize"}],
            "space": {
                "number": {"type": "int", "low": 0, "high": 1000},
                "do": {"type": "categorical", "choices": sorted({*actions, "observe"})},
            },
            "enqueue": [{"number": number, "do": action} for number, action in enumerate(actions)],
            "search": {"sampler": "random"},
            "config": {"record": str(self.record_of(name))},
            "trainer": trainer,
            "limits": {"max_trials": len(actions), "parallelism": fields.pop("parallelism", 1)},
            "failures": {"max_failed_trials": len(actions) + 1},
            **fields,
        }
        with Client(self.stack.url) as client, packed(code) as sent:
            client.submit(json.dumps(spec).encode(), sent)

    def run(self, name: str, actions: list[str], **options: Any) -> list[dict[str, Any]]:
        """Submit, and wait for the end. Returns the trials by their numbers."""
        self.submit(name, actions, **options)
        return self.wait(name)

    def wait(self, name: str) -> list[dict[str, Any]]:
        until(lambda: self.stack.experiment(name)["status"] != "running", f"the end of {name}", TRIALS_SECONDS)
        return self.of(name)

    def of(self, name: str) -> list[dict[str, Any]]:
        with Client(self.stack.url) as client:
            found = [client.trial(one["id"]) for one in client.trials(name)]
        return sorted(found, key=lambda trial: int(trial["number"]))

    def record_of(self, name: str) -> Path:
        return self.record / f"{name}.txt"

    def lines(self, name: str) -> dict[int, dict[str, Any]]:
        read = map(json.loads, self.record_of(name).read_text().splitlines())
        return {line["number"]: line for line in read}


@pytest.fixture(scope="package")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    if shutil.which("nvidia-smi") is None:
        pytest.fail("there is no nvidia-smi, so no NVIDIA GPU; `make test` has what needs none")
    data_dir = tmp_path_factory.mktemp("gpu") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACELINE_SYSTEM_METRICS_SECONDS", "1")
        with running_stack(data_dir) as stack:
            yield Trials(stack, tmp_path_factory.mktemp("record"))
