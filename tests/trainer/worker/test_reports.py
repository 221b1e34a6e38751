"""What the exception says by which `ray.train.report()` ends the training function, for code that prints it."""

from types import SimpleNamespace

import pytest
import ray

from trainer.phase_times import PhaseTimes
from trainer.worker.logs.masker import Masker
from trainer.worker.reports import REPORT_FAILED, STOP_MESSAGE, Reporter, StopTraining


@pytest.fixture
def reporter(monkeypatch: pytest.MonkeyPatch) -> Reporter:
    """Its slot answers each report with `stop`."""
    monkeypatch.setattr(ray, "get", lambda answer: answer)
    slot = SimpleNamespace(report=SimpleNamespace(remote=lambda *_: "stop"))
    return Reporter(slot, "run", 0, 1, None, Masker({}), PhaseTimes())


def test_a_stop_has_a_text(reporter: Reporter) -> None:
    with pytest.raises(StopTraining) as stopped:
        reporter.report({"loss": 1.0}, None, None, None)
    assert str(stopped.value) == STOP_MESSAGE
    with pytest.raises(StopTraining) as stopped:
        reporter.refuse(ValueError())
    assert str(stopped.value) == REPORT_FAILED
