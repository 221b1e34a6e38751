"""An attempt tells the seconds of its phases and the load of its nodes."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.trainer.conftest import set_constant, until
from tests.trainer.slot.attempt.played_attempt import (
    SECONDS,
    STARTED,
    play,
    played,
)
from trainer.slot.attempt.system_samples import SystemSamples
from trainer.wire import PhaseSeconds
from trainer.worker.messages import RankReport, WorkerEnded

pytestmark = pytest.mark.ray  # Ray's filters of warnings: the slot's modules import Ray


def test_heartbeats_and_the_end_tell_the_seconds_by_phase(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, lease_seconds=0.3) as one:
            told = one.service.phases[one.trial]
            await asyncio.to_thread(until, lambda: told, "the first heartbeat", SECONDS)
            assert told[0] == PhaseSeconds()
            one.attempt.function_began()
            waits = {"data": 0.0, "checkpointing": 0.0, "reporting": 1e-6}
            assert await one.attempt.report(RankReport(0, 0, 1, {"loss": 1.0}, None, waits)) == "continue"
            await asyncio.to_thread(until, lambda: told[-1] and told[-1].reporting, "a later heartbeat", SECONDS)
            assert told[-1] is not None
            assert told[-1].training > 0
            await one.attempt.worker_ended(0, WorkerEnded(times=waits | {"running": 0.01}))
            end = (await one.finished()).phases
            assert end is not None
            assert end.training == pytest.approx(0.01 - 1e-6)
            assert end.total >= told[-1].total

    play(run)


def test_the_load_of_the_nodes_arrives_with_heartbeats_and_with_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sample has the GPUs of all ranks on its node."""
    set_constant(monkeypatch, SystemSamples.due, "SEND_SECONDS", 0)
    gpus = [{"index": str(n), "uuid": f"GPU-{n}", "metrics": {"utilization_percentage": 10.0 * n}} for n in range(4)]

    async def run() -> None:
        async with played(tmp_path, scaling={"num_workers": 3}, lease_seconds=0.3) as one:
            told = one.service.samples[one.trial]
            one.attempt.worker_started(0, replace(STARTED, gpus=["3"]))
            one.attempt.worker_started(1, replace(STARTED, gpus=["1"]))
            one.attempt.system_sampled(0, 0, {"cpu_utilization_percentage": 1.0}, gpus)  # too early
            one.attempt.worker_started(2, replace(STARTED, node="other", gpus=["0"]))
            one.attempt.system_sampled(0, 0, {"cpu_utilization_percentage": 5.0}, gpus)
            await asyncio.to_thread(until, lambda: told, "a heartbeat with the sample", SECONDS)
            shares = {"gpu_0_utilization_percentage": 10.0, "gpu_1_utilization_percentage": 30.0}
            assert (told[0].sequence, told[0].node) == (0, 0)
            assert told[0].metrics == {"cpu_utilization_percentage": 5.0} | shares
            set_constant(monkeypatch, SystemSamples.due, "SEND_SECONDS", 600)
            one.attempt.system_sampled(2, 1, {}, gpus)
            for rank in range(3):
                await one.attempt.worker_ended(rank, WorkerEnded())
            assert (await one.finished()).system_metrics[-1].metrics == {"gpu_0_utilization_percentage": 0.0}

    play(run)


def test_a_service_that_does_not_know_samples_gets_heartbeats_and_the_end_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constant(monkeypatch, SystemSamples.due, "SEND_SECONDS", 0)

    async def run() -> None:
        async with played(tmp_path, lease_seconds=0.3) as one:
            one.service.unknown_fields = {"heartbeat": "system_metrics", "finish": "system_metrics"}
            one.attempt.system_sampled(0, None, {"cpu_utilization_percentage": 5.0}, [])
            enough = one.service.heartbeats[one.trial] + 3
            await asyncio.to_thread(until, lambda: one.service.heartbeats[one.trial] >= enough, "heartbeats", SECONDS)
            one.attempt.system_sampled(0, None, {"cpu_utilization_percentage": 6.0}, [])
            await one.attempt.worker_ended(0, WorkerEnded())
            assert (await one.finished()).outcome == "completed"
            assert one.service.samples[one.trial] == []

    play(run)


def test_a_report_that_arrives_after_the_end_of_its_rank_changes_no_seconds(tmp_path: Path) -> None:
    """Ray may run a later call before an earlier one."""

    async def run() -> None:
        async with played(tmp_path) as one:
            one.attempt.function_began()
            waits = {"data": 0.0, "checkpointing": 0.0, "reporting": 0.0}
            await one.attempt.worker_ended(0, WorkerEnded(times=waits | {"running": 1e-6}))
            assert await one.attempt.report(RankReport(0, 0, 1, {"loss": 1.0}, None, waits)) == "continue"
            end = (await one.finished()).phases
            assert end is not None
            assert end.training == 1e-6

    play(run)


def test_the_seconds_of_ranks_that_were_killed_are_kept(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.attempt.function_began()
            waits = {"data": 0.0, "checkpointing": 1e-6, "reporting": 0.0}
            assert await one.attempt.report(RankReport(0, 0, 1, {"loss": 1.0}, None, waits)) == "continue"
            end = (await one.finished()).phases
            assert end is not None
            assert end.checkpointing == 1e-6
            assert min(end.training, end.idle) > 0

    play(run)
