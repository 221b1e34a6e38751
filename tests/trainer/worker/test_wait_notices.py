"""When a rank says that it waits in a report, or for a batch."""

from typing import Any

import pytest

from trainer.worker import wait_notices
from trainer.worker.datasets.shard_waits import DatasetShards, DataWait
from trainer.worker.wait_notices import NOTICE_SECONDS, WaitNotices


def test_a_long_wait_in_one_report_is_said_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    notices = WaitNotices(1, 2, clock=lambda: now)

    def said(report: int | None, at: float) -> int:
        nonlocal now
        now = at
        caplog.clear()
        notices.look(report)
        return len(caplog.records)

    assert [said(None, 100), said(4, 105), said(4, 164)] == [0, 0, 0]
    assert said(4, 165) == 1
    assert "rank 1 has been in ray.train.report() for 60 s (its report 5)" in caplog.text
    assert [said(4, 284), said(4, 285), said(4, 524), said(4, 525)] == [0, 1, 0, 1]
    assert [said(5, 600), said(5, 660), said(None, 700), said(5, 800)] == [0, 1, 0, 0]


def test_a_long_wait_for_one_batch_is_said_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    notices = WaitNotices(1, 2, clock=lambda: now)

    def said(data: DataWait | None, at: float) -> int:
        nonlocal now
        now = at
        caplog.clear()
        notices.look(None, data)
        return len(caplog.records)

    first, second = DataWait.for_batch("train", 101, 2), DataWait.for_batch("train", 300, 2)
    assert [said(None, 100), said(first, 105), said(first, 164)] == [0, 0, 0]
    assert said(first, 165) == 1
    assert "rank 1 has waited for the next batch of the dataset 'train' for 60 s" in caplog.text
    assert [said(first, 284), said(first, 285), said(second, 305), said(None, 400), said(second, 500)] == [
        0,
        1,
        0,
        0,
        0,
    ]
    assert said(DataWait.for_batch(None, 600, 2), 600) == 0
    assert said(DataWait.for_batch(None, 600, 2), 660) == 1
    assert "batch of the dataset for 60 s" in caplog.text
    assert [said(DataWait.for_shard(since=700), 700), said(DataWait.for_shard(since=700), 760)] == [0, 1]
    assert "rank 1 has waited for ray.train.get_dataset_shard() for 60 s; usually, the function that" in caplog.text


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_rank_without_others_is_not_told_of_them(caplog: pytest.LogCaptureFixture, world_size: int) -> None:
    now = 0.0
    notices = WaitNotices(0, world_size, clock=lambda: now)
    wait = DataWait.for_batch("train", 0, world_size)
    notices.look(0, wait)
    now = NOTICE_SECONDS
    notices.look(0, wait)
    assert len(caplog.records) == 2
    assert caplog.text.count("the other ranks") == (2 if world_size > 1 else 0)
    assert "its checkpoint is still being saved" in caplog.text


def test_a_rank_is_watched_in_a_thread_of_its_own_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank without others, too, which may wait for data."""
    looked: list[Any] = []
    monkeypatch.setattr(wait_notices, "_look", lambda *watched: looked.append(watched))
    waits = DatasetShards(1).batch_wait
    with wait_notices.noticing_waits(0, 1, waits):
        pass
    ((_, batch_wait, ended),) = looked
    assert (batch_wait, ended.is_set(), NOTICE_SECONDS) == (waits, True, 60)
