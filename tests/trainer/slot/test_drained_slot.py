"""A slot on a node that is drained."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import until
from tests.trainer.fake_service import FakeService
from tests.trainer.slot.attempt.played_attempt import STARTED
from tests.trainer.slot.conftest import ended
from trainer.wire import FailureKind

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def reporting(service: FakeService, trial: str, actor: Any) -> tuple[str, Any, str]:
    """The trial that has reported, its slot, and the slot's only node."""
    import ray  # noqa: PLC0415 - heavy

    service.wait_for(lambda: service.reports[trial], what="a report")
    (node,) = ray.get(actor.status.remote())["nodes"]
    return trial, actor, node


def why_preempted(service: FakeService, trial: str) -> str:
    error = service.finished(trial).error
    assert error is not None
    assert error.kind == FailureKind.PREEMPTED
    return error.message


def test_a_slot_on_a_drained_node_gives_its_trial_back_with_its_last_checkpoint_and_ends(
    alone: FakeService, start: Callable[[str], tuple[str, Any]], record: Path
) -> None:
    import ray  # noqa: PLC0415 - heavy

    trial, actor, node = reporting(alone, *start("save"))
    ray.get(actor.drain.remote(["another"], 0))
    assert not ray.get(actor.status.remote())["draining"]
    for _ in range(2):
        ray.get(actor.drain.remote([node], 600))
    assert "a node was drained" in why_preempted(alone, trial)
    assert not alone.finished(trial).next
    assert ended(actor)
    last = alone.reports[trial][-1]
    assert record.read_text().splitlines()[-1] == f"0 step {last.metrics['epoch']}"
    assert Path(last.checkpoint or "", "shard-0").read_text() == str(last.metrics["epoch"])


def test_an_attempt_goes_on_where_only_earlier_workers_of_its_slot_ran_on_the_drained_node(
    alone: FakeService, start: Callable[[str], tuple[str, Any]]
) -> None:
    """Such as after the loss of a worker group, or where each attempt gets a new one."""
    import ray  # noqa: PLC0415 - heavy

    trial, actor, node = reporting(alone, *start("save"))
    earlier = replace(STARTED, node="earlier", placement_group="earlier")
    ray.get(actor.worker_started.remote("an-earlier-run", 0, earlier.to_fields()))
    ray.get(actor.drain.remote(["earlier"], 0))
    status = ray.get(actor.status.remote())
    assert (status["draining"], status["nodes"], status["trial"]) == (False, [node], trial)
    ray.get(actor.drain.remote([node], 600))
    assert ended(actor)


def test_a_function_that_saves_before_its_node_goes_away_loses_nothing(
    alone: FakeService, start: Callable[[str], tuple[str, Any]], record: Path
) -> None:
    import ray  # noqa: PLC0415 - heavy

    trial, actor, node = reporting(alone, *start("save_when_preempted"))
    ray.get(actor.drain.remote([node], 600))
    assert "a node was drained" in why_preempted(alone, trial)
    assert record.read_text() == "0 preempted [0] True\n"
    *others, last = alone.reports[trial]
    assert not any(report.checkpoint for report in others)
    assert Path(last.checkpoint or "", "shard-0").read_text() == str(last.metrics["epoch"])
    assert ended(actor)


def test_an_attempt_that_ignores_the_drain_of_its_node_is_ended_in_time(
    alone: FakeService, start: Callable[[str], tuple[str, Any]], record: Path
) -> None:
    import ray  # noqa: PLC0415 - heavy

    trial, actor = start("ignore_everything")
    until(record.exists, "the start")
    ray.get(actor.drain.remote([ray.get_runtime_context().get_node_id()], 0.5))
    assert "a node was drained" in why_preempted(alone, trial)
    assert ended(actor)
