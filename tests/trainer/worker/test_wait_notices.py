"""When a rank says that it waits in a report."""

import pytest

from trainer.worker import wait_notices
from trainer.worker.wait_notices import NOTICE_SECONDS, WaitNotices


def test_a_long_wait_in_one_report_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    notices = WaitNotices(1, clock=lambda: now)

    def said(report: int | None, at: float) -> int:
        nonlocal now
        now = at
        caplog.clear()
        notices.look(report)
        return len(caplog.records)

    assert [said(None, 100), said(4, 105), said(4, 164)] == [0, 0, 0]
    assert said(4, 165) == 1
    assert "rank 1 has been in ray.train.report() for 60 s (its report 5)" in caplog.text
    assert [said(4, 170), said(4, 225), said(5, 300), said(None, 400), said(5, 500)] == [0, 1, 0, 0, 0]


def test_a_rank_without_others_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(wait_notices, "_look", lambda rank, _ended: looked.append(rank))
    for size in (1, 2):
        with wait_notices.noticing_waits(0, size):
            pass
    assert (looked, NOTICE_SECONDS) == ([0], 60)
