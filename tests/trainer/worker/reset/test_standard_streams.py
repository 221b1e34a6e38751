"""A trial's standard streams do not become those of the next trial in its process."""

import io
import subprocess
import sys

import pytest

from trainer.worker.reset import baseline as reset
from trainer.worker.reset.standard_streams import StandardStreams


def test_replaced_streams_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    own, others = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", own)
    before = StandardStreams()
    sys.stdout = others
    assert before.put_back() is None
    assert sys.stdout is own


def test_a_process_whose_stream_was_closed_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    before = StandardStreams()
    sys.stdout.close()
    assert before.put_back() == "the training function closed sys.stdout or sys.stderr"


def test_a_process_whose_output_goes_elsewhere_is_not_used_again() -> None:
    code = (
        "import os; from trainer.worker.reset.standard_streams import StandardStreams; before = StandardStreams();"
        "os.dup2(os.open(os.devnull, os.O_WRONLY), 1); os.write(2, str(before.put_back()).encode())"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == "the training function redirected its standard output or error"


def test_a_process_in_which_deepspeed_has_a_group_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Comm:
        """As DeepSpeed's module, which is imported before its first group."""

        cdb: object = None

    monkeypatch.setitem(sys.modules, "deepspeed.comm.comm", Comm)
    baseline = reset.Baseline()
    assert baseline.restore() is None
    Comm.cdb = object()
    assert baseline.restore() == "DeepSpeed keeps this trial's process group"
