"""The table of a live view: its rows, and curves that can be compared with each other."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from service.cli.terminal.curves import BARS, Curves, Scale, sparkline
from service.cli.terminal.live_table import CURVE_WIDTH, live_table

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def curves() -> Curves:
    return Curves("loss")


def create(curves: Curves, number: int, *values: Any, status: str = "running", **params: Any) -> None:
    trial = f"t-{number}"
    add(curves, "trial.created", trial, number=number, params=params)
    add(curves, "trial.running", trial, number=number)
    for step, value in enumerate(values, start=1):
        add(curves, "report", trial, step=step, metrics={"loss": value})
    if status != "running":
        add(curves, f"trial.{status}", trial, number=number)


def add(curves: Curves, kind: str, trial: str | None, after: float = 0, **data: Any) -> None:
    at = (BEGAN + timedelta(seconds=after)).isoformat()
    curves.add({"kind": kind, "trial": trial, "data": data, "at": at})


def shown(curves: Curves, *, rows: int = 9, maximize: bool = False, after: float = 0) -> list[str]:
    table = live_table(curves, metric="loss", maximize=maximize, rows=rows, now=BEGAN + timedelta(seconds=after))
    console = Console(width=120, record=True)
    console.print(table)
    return console.export_text().splitlines()


def test_before_the_first_trial_runs_there_is_no_table(curves: Curves) -> None:
    add(curves, "trial.created", "t-0", number=0, params={})
    assert live_table(curves, metric="loss", maximize=False, rows=9, now=BEGAN) is None


def test_a_trial_that_runs_without_a_report_shows_for_how_long(curves: Curves) -> None:
    create(curves, 0, lr=0.1)
    [header, row] = shown(curves, after=65)
    assert header.split() == ["trial", "status", "time", "step", "loss", "parameters"]
    assert row.split() == ["0", "running", "1:05", "lr=0.1"]


def test_the_time_is_that_of_all_attempts_without_the_waits_between_them(curves: Curves) -> None:
    create(curves, 0, 0.5)
    add(curves, "trial.queued", "t-0", after=50, number=0)
    add(curves, "trial.running", "t-0", after=100, number=0)
    assert shown(curves, after=110)[1].split()[:3] == ["0", "running", "1:00"]
    add(curves, "trial.paused", "t-0", after=120, number=0)
    add(curves, "trial.pruned", "t-0", after=900, number=0)
    assert shown(curves, after=1000)[1].split()[:3] == ["0", "pruned", "1:10"]


@pytest.mark.parametrize(("maximize", "order"), [(False, ["3", "1", "2", "0"]), (True, ["3", "0", "2", "1"])])
def test_running_trials_come_first_and_then_the_best(curves: Curves, maximize: bool, order: list[str]) -> None:
    create(curves, 0, 3, status="completed")
    create(curves, 1, 1, status="pruned")
    create(curves, 2, 2, status="failed")
    create(curves, 3, 9)
    create(curves, 4, status="failed")
    assert [line.split()[0] for line in shown(curves, maximize=maximize)[1:]] == order
    assert len(shown(curves, rows=2)) == 3


def test_a_row_has_the_newest_value_and_the_params(curves: Curves) -> None:
    create(curves, 7, 0.5, 0.25, lr=0.1, optimizer="sgd")
    [header, row] = shown(curves)
    assert header.split()[:5] == ["trial", "status", "time", "step", "loss"]
    assert row.split()[:5] == ["7", "running", "0:00", "2", "0.25"]
    assert "lr=0.1, optimizer=sgd" in row


def test_curves_share_one_scale(curves: Curves) -> None:
    create(curves, 0, *[1.0] * 40, status="completed")
    create(curves, 1, *[0.0] * 20, status="pruned")
    scale = Scale.of(list(curves.by_trial.values()))
    [high, low] = [sparkline(curve.points, scale, 8) for curve in curves.by_trial.values()]
    assert high == "████████"
    assert low == "▁▁▁▁"


def test_a_few_outliers_do_not_flatten_the_others(curves: Curves) -> None:
    create(curves, 0, 1e6, *[step / 100 for step in range(99)])
    [curve] = curves.by_trial.values()
    bars = sparkline(curve.points, Scale.of([curve]), 10)
    assert set(bars) == set(BARS)
    assert list(bars) == sorted(bars)


def test_missing_and_unusable_values_leave_the_curve_as_it_was(curves: Curves) -> None:
    create(curves, 0, 1.0, None, "NaN", float("inf"), True, 3.0)
    add(curves, "report", "t-0", step=7, metrics={})
    add(curves, "experiment.changed", None)
    [curve] = curves.by_trial.values()
    assert curve.points == {1: 1.0, 5: 1.0, 6: 3.0}, "true counts as for the search"
    assert curve.newest == (6, 3.0)
    assert len(sparkline(curve.points, Scale.of([curve]), CURVE_WIDTH)) <= CURVE_WIDTH


def test_a_constant_curve_is_drawn(curves: Curves) -> None:
    create(curves, 0, 2.0)
    [curve] = curves.by_trial.values()
    assert sparkline(curve.points, Scale.of([curve]), 4).strip() == "▁"


def test_an_exploited_trial_goes_on_from_the_others_step(curves: Curves) -> None:
    create(curves, 0, 1.0, 2.0, 3.0, lr=1)
    add(curves, "trial.exploited", "t-0", params={"lr": 2}, checkpoint={"step": 1})
    [curve] = curves.by_trial.values()
    assert (curve.points, curve.params) == ({1: 1.0}, {"lr": 2})
