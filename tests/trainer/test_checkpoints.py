"""Which checkpoints are on disk, and that none is lost that the service knows. With a real Ray and real kills."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import Add
from tests.trainer.fake_service import FakeService
from trainer.wire import Outcome

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def until(condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)
    return found


def lines(record: Path, first_word: str) -> list[str]:
    found = record.read_text().splitlines() if record.exists() else []
    return [line.split(" ", 1)[1] for line in found if line.split()[1] == first_word]


def known(service: FakeService, trial: str) -> list[str]:
    return [r.checkpoint for r in service.reports[trial] if r.checkpoint]


def on_disk(service: FakeService, trial: str) -> set[str]:
    return {str(path) for path in Path(service.storage).glob(f"*{trial}*/checkpoint_2*")}


def slot_of(trial: str) -> int:
    """The process that runs it."""
    import ray  # noqa: PLC0415 - heavy

    from trainer.cluster import find_slots  # noqa: PLC0415 - heavy

    for slot in find_slots("slot.test.").values():
        if ray.get(slot.status.remote())["trial"] == trial:
            return int(ray.get(slot.__ray_call__.remote(lambda _self: os.getpid())))
    raise AssertionError(f"no slot runs {trial}")


def test_of_the_checkpoints_that_the_service_knows_only_the_newest_stay(
    service: FakeService, add: Add, record: Path
) -> None:
    trial = add("save_and_list", config={"expected": 2}, keep_checkpoints=2)
    assert service.finished(trial, 120).outcome == Outcome.COMPLETED
    until(lambda: on_disk(service, trial) == set(known(service, trial)[-2:]), "the older ones are removed")
    assert lines(record, "listed") == ["listed 2 5", "listed 2 5"]


def test_a_slot_killed_while_the_service_is_away_leaves_the_checkpoint_that_the_service_knows(
    service: FakeService, add: Add, record: Path
) -> None:
    trial = add("save", config={"steps": 10_000, "pause": 0.05})
    service.wait_for(lambda: len(known(service, trial)) >= 2, 120, "two checkpoints")
    service.away = True
    newest = known(service, trial)[-1]
    until(
        lambda: len({path for path in on_disk(service, trial) if path > newest}) >= 4, "some more that it is not told"
    )
    os.kill(slot_of(trial), signal.SIGKILL)
    service.lose(trial)
    service.away = False
    assert known(service, trial)[-1] == newest
    step = len(known(service, trial))
    resumed = add("save", config={"steps": 2}, resume={"uri": newest, "step": step})
    assert service.finished(resumed).outcome == Outcome.COMPLETED
    assert lines(record, "from")[-2:] == [f"from {step}"] * 2
    assert [r.metrics["epoch"] for r in service.reports[resumed]] == [step + 1, step + 2]
