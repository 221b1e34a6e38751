"""The charts on an experiment's MLflow run."""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow import MlflowClient

from service.background.charting import Charting
from service.mirror.charts import renderer_process
from service.mirror.charts.chart_data import ChartData, ChartTrial, thinned
from service.mirror.charts.renderer_process import Rendered, RendererFailed, render_charts
from service.settings import Settings
from service.store.advisory_locks import AdvisoryLock
from service.store.sql.database import Database
from service.store.tables import MirrorRow, TrialRow
from tests.conftest import changed, running

pytestmark = pytest.mark.slow

PNG = b"\x89PNG"


def chart_data(count: int = 12, **changes: Any) -> ChartData:
    trials = [
        ChartTrial(
            number=2 * number,
            completed=number != 3,
            params={"lr": 0.1 * number + 0.01, "layers": [1, True][number % 2]},
            values=[float(number), 20.0 - number],
            violation=float(number % 3 == 0),
            curve=[(1, 2.0 * number), (2, 1.0 * number)],
            stopped_early=number == 3,
        )
        for number in range(count)
    ]
    space = {"lr": {"type": "float", "low": 1e-4, "high": 10}, "layers": {"type": "categorical", "choices": [1, True]}}
    known: dict[str, Any] = {"space": space, "metrics": ["loss", "a/b"], "directions": ["minimize", "maximize"]}
    return ChartData(**{**known, "curve_metric": "loss", "constrained": True, "trials": trials, **changes})


def test_each_objective_has_its_charts_and_there_is_a_pareto_front(tmp_path: Path) -> None:
    assert render_charts(chart_data(), tmp_path, threading.Event()) is Rendered.ALL
    kinds = ["optimization_history", "parallel_coordinate", "slices", "importance"]
    expected = {f"{kind}_of_{place}.png" for kind in kinds for place in ("1_loss", "2_a_b")}
    assert {path.name for path in tmp_path.iterdir()} == expected | {"pareto_front.png", "learning_curves.png"}
    assert all(path.read_bytes().startswith(PNG) for path in tmp_path.iterdir())


def test_an_objective_with_a_long_name_in_any_script_has_its_charts(tmp_path: Path) -> None:
    """A file's name has at most 255 bytes, on S3 servers that keep objects on local disks, too."""
    data = chart_data(metrics=["\N{MATHEMATICAL BOLD SMALL A}" * 100, "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 100])
    render_charts(data, tmp_path, threading.Event())
    names = [path.name for path in tmp_path.iterdir()]
    assert [sum(f"_of_{place}_" in name for name in names) for place in (1, 2)] == [4, 4]
    assert f"slices_of_2_{data.metrics[1][:60]}.png" in names, "as earlier versions have named it"


@pytest.mark.filterwarnings("ignore")
def test_a_chart_that_fails_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("no such chart")

    from service.mirror.charts import renderer  # noqa: PLC0415 - Matplotlib takes a second to import

    monkeypatch.setattr("optuna.visualization.matplotlib.plot_optimization_history", fail)
    made = renderer.render(chart_data(4, metrics=["loss"], directions=["minimize"], trials=one_objective(4)), tmp_path)
    assert {path.stem for path in made} == {"parallel_coordinate", "slices", "learning_curves"}


@pytest.mark.filterwarnings("ignore")
def test_the_importances_of_a_chart_are_those_of_the_api() -> None:
    from service.mirror.charts.importance_chart import importances  # noqa: PLC0415 - Matplotlib takes a second

    data = chart_data(24)
    trials = [one.model_copy(update={"params": {**one.params, "layers": 1}}) for one in data.trials]
    values = {one.number: float(one.number) for one in trials}
    assert importances(data.model_copy(update={"trials": trials}), values, "minimize") == {"lr": 1.0, "layers": 0.0}
    few = {number: values[number] for number in [*values][:9]}
    assert importances(data, few, "minimize") == {}


def one_objective(count: int) -> list[ChartTrial]:
    return [one.model_copy(update={"values": (one.values or [])[:1]}) for one in chart_data(count).trials]


def scored(count: int, completed: int) -> ChartData:
    """Trials with one objective, of which early stopping has ended most."""
    trials = [
        one.model_copy(
            update={
                "completed": one.number < 2 * completed,
                "stopped_early": one.number >= 2 * completed,
                "score": one.number / (2 * count - 2),
                "curve": [],
            }
        )
        for one in one_objective(count)
    ]
    return chart_data(count, metrics=["loss"], directions=["minimize"], trials=trials, by_score=True, constrained=False)


@pytest.mark.filterwarnings("ignore")
def test_after_early_stopping_charts_show_all_trials_by_their_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - takes a second to import

    from service.mirror.charts import renderer  # noqa: PLC0415

    titles: dict[str, tuple[str, int]] = {}
    save = mpl.figure.Figure.savefig

    def saved(figure: Any, path: Path, **options: Any) -> None:
        dots = max((len(one.get_offsets()) for axes in figure.axes for one in axes.collections), default=0)
        titles[path.stem] = (figure.get_suptitle(), dots)
        save(figure, path, **options)

    monkeypatch.setattr(mpl.figure.Figure, "savefig", saved)
    made = renderer.render(scored(24, completed=3), tmp_path)
    assert {path.stem for path in made} == {"optimization_history", "parallel_coordinate", "slices", "importance"}
    assert all(title.startswith("All 24 trials by curve score, 21 of them cut short") for title, _ in titles.values())
    assert titles["slices"][1] == 24
    assert titles["optimization_history"][1] == 21


def test_a_renderer_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)the chart renderer ended with code 1.*lr"):
        render_charts(chart_data(space={"lr": {"type": "nonsense"}}), tmp_path, threading.Event())


def test_a_service_that_stops_does_not_wait_for_charts(tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()
    assert render_charts(chart_data(), tmp_path, stopping) is Rendered.NONE


def renderer_that(does: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python code in place of the renderer; `directory` is where it is to write charts."""
    code = f"import pathlib, sys; directory = pathlib.Path(sys.argv[1]); {does}; sys.stdin.read()"
    monkeypatch.setattr(renderer_process, "module_command", lambda *given: [sys.executable, "-c", code, given[-1]])


def test_a_service_that_stops_does_not_wait_for_a_renderer_that_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renderer_that("import time; time.sleep(3600)", monkeypatch)
    stopping = threading.Event()
    stopping.set()
    assert render_charts(chart_data(2000), tmp_path, stopping) is Rendered.NONE


def test_the_charts_that_are_finished_when_time_is_up_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun = tmp_path / "slices.unfinished"
    renderer_that("[directory.joinpath(f'slices{end}').touch() for end in ('.png', '.unfinished')]", monkeypatch)
    clock = SimpleNamespace(monotonic=lambda: 1e6 * begun.exists())
    monkeypatch.setattr(renderer_process, "time", clock)
    assert render_charts(chart_data(), tmp_path, threading.Event()) is Rendered.SOME
    assert [path.name for path in tmp_path.iterdir()] == ["slices.png"]
    assert "and had finished only slices.png" in caplog.text


def test_a_renderer_that_finishes_no_chart_in_time_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renderer_that("pass", monkeypatch)
    monkeypatch.setattr(renderer_process, "time", SimpleNamespace(monotonic=iter((0.0, 1e6)).__next__))
    with pytest.raises(RendererFailed, match="took more than"):
        render_charts(chart_data(), tmp_path, threading.Event())


@pytest.mark.filterwarnings("ignore")
def test_of_many_parameters_the_most_important_ones_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - takes a second to import

    from service.mirror.charts import optuna_charts, renderer  # noqa: PLC0415

    monkeypatch.setattr(optuna_charts, "MAX_PARAMS", 2)
    labels: dict[str, list[str]] = {}
    monkeypatch.setattr(
        mpl.figure.Figure,
        "savefig",
        lambda figure, path, **_: labels.update({path.stem: [axes.get_xlabel() for axes in figure.axes]}),
    )
    names = [f"p{number}" for number in range(5)]
    trials = [
        one.model_copy(update={"params": {name: 0.5 if name != "p3" else one.number / 46 for name in names}})
        for one in one_objective(24)
    ]
    space = {name: {"type": "float", "low": 0, "high": 1} for name in names}
    renderer.render(chart_data(space=space, metrics=["loss"], directions=["minimize"], trials=trials), tmp_path)
    assert [label for label in labels["slices"] if label in names] == ["p0", "p3"]


def test_charts_that_cannot_be_uploaded_stay_due_and_stop_nothing(
    database: Database, begin_experiment: Callable[..., Any]
) -> None:
    history = begin_experiment()
    trial = history.trial(0, lr=0.1)
    with database.write() as session:
        row = session.get(TrialRow, trial)
        assert row is not None
        row.status, row.value, row.changed_at_event = "completed", 0.5, 2
        session.add(MirrorRow(experiment_id=history.experiment_id, cursor=2, parent_run_id="r", updated_at=history.now))
    charting = Charting(database, "http://127.0.0.1:9", refresh=1, stopping=threading.Event())
    assert charting.run_once() == 0
    with database.read() as session:
        mirror = session.get_one(MirrorRow, history.experiment_id)
        assert (mirror.pictured_event, mirror.pictured_at) == (0, None)


def test_a_service_without_the_charts_lock_is_not_behind(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its loop would ask for the lock without a pause."""
    monkeypatch.setattr("service.background.charting.charts.outdated_experiments", lambda *_: ["x-1", "x-2"])
    monkeypatch.setattr(Charting, "_update_charts", lambda *_: None)
    charting = Charting(database, "http://127.0.0.1:9", refresh=1, stopping=threading.Event())
    assert (charting.run_once(), charting.is_behind) == (1, True)
    taken = AdvisoryLock(None, held=False)
    monkeypatch.setattr("service.background.charting.try_charts_lock", lambda _: nullcontext(taken))
    assert (charting.run_once(), charting.is_behind) == (0, False)


def test_charts_that_fail_again_and_again_are_logged_once(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("service.background.charting.charts.outdated_experiments", lambda *_: ["x-1"])
    monkeypatch.setattr(Charting, "_update_charts", lambda *_: 1 / 0)
    passed = [0.0]
    address = "http://127.0.0.1:9"
    charting = Charting(database, address, refresh=1, stopping=threading.Event(), clock=lambda: sum(passed))
    for _ in range(3):
        charting.run_once()
        passed.append(60)
    assert caplog.messages == ["the charts of experiment x-1 failed: ZeroDivisionError: division by zero"]


def test_a_renderer_that_fails_is_started_again_after_a_long_rest(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        calls.append(sum(passed))
        raise RendererFailed("it took too long")

    calls, passed = list[float](), [0.0]
    monkeypatch.setattr("service.background.charting.charts.outdated_experiments", lambda *_: ["x-1"])
    monkeypatch.setattr(Charting, "_update_charts", fail)
    address = "http://127.0.0.1:9"
    charting = Charting(database, address, refresh=1, stopping=threading.Event(), clock=lambda: sum(passed))
    for _ in range(25):
        charting.run_once()
        passed.append(60)
    assert calls == [0, 600, 1200]


def test_many_trials_are_thinned_out_evenly_with_the_last_one() -> None:
    some = thinned(list(range(101)), 10)
    assert len(some) <= 10
    assert some[-1] == 100
    assert len({after - before for before, after in pairwise(some)}) == 1
    assert thinned([1, 5, 7], 10) == [1, 5, 7]


def test_trials_run_through_the_api_get_charts_in_mlflow(settings: Settings, mlflow_server: Any) -> None:
    client = MlflowClient(tracking_uri=mlflow_server.uri)
    with running(changed(settings, mlflow_uri=mlflow_server.uri, picture_seconds=3600)) as api:
        name = api.create(limits={"max_trials": 11})["name"]
        for number in range(11):
            held = api.ask(name)
            assert held is not None
            for step in (1, 2):
                held.report(accuracy=number * step / 22)
            held.finish()
        wanted = {"importance", "learning_curves", "optimization_history", "parallel_coordinate", "slices"}
        assert charts_of(client, name, len(wanted)) == {f"pictures/{one}.png" for one in wanted}


def charts_of(client: MlflowClient, name: str, count: int) -> set[str]:
    """Return the artifacts once there are `count`."""
    deadline, found = time.monotonic() + 400, set[str]()
    while time.monotonic() < deadline and len(found) < count:
        time.sleep(0.2)
        experiment = client.get_experiment_by_name(name)
        runs = client.search_runs([experiment.experiment_id], f"attributes.run_name = '{name}'") if experiment else []
        found = {one.path for run in runs for one in client.list_artifacts(run.info.run_id, "pictures")}
    return found
