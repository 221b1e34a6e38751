"""Following an experiment in the terminal: a live view, or plain lines where the output cannot be drawn over."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from service.cli.client.answers import Refused, Unreachable
from service.cli.client.client import Client
from service.cli.terminal import progress_view
from service.cli.terminal.end_wait import ENDED
from service.cli.terminal.live_table import live_table
from service.cli.terminal.outage import OUTAGE_SECONDS, POLL_SECONDS
from service.cli.terminal.progress import TrialProgress
from service.cli.terminal.text_layout import plain

MLFLOW_SECONDS = 5.0
"""How long after its end an experiment's page in MLflow may take to appear, on a machine that is busy."""

STATUS_LINE_SECONDS = 10
MIN_ROWS, MAX_ROWS = 3, 16
OTHER_LINES = 12
"""Of the live view: all that is not a trial's row, and the line of the cursor."""

Json = dict[str, Any]


def watch_experiment(client: Client, name: str, console: Console, outage_seconds: float = OUTAGE_SECONDS) -> Json:
    """Show the experiment until it ends, then a summary; return the experiment as it ended.

    Raises Unreachable and Refused; but an experiment that was found is followed across an outage of `outage_seconds`.
    """
    experiment = client.experiment(name)
    metric = experiment["spec"]["objectives"][0]["metric"]
    progress = TrialProgress(metric, outage_seconds=outage_seconds)
    follow = _follow_live if _can_draw_over(console) else _follow_plain
    experiment = follow(_updates(client, experiment, progress), progress, console)
    console.print()
    for label, text in _summary(client, experiment, progress):
        console.print(Text.assemble((f"{label:<12}", "bold"), plain(text)), soft_wrap=True)
    return experiment


def _can_draw_over(console: Console) -> bool:
    """Variables such as FORCE_COLOR make Rich take a pipe for a terminal; and a dumb one gets the last view only."""
    return console.is_terminal and not console.is_dumb_terminal and console.file.isatty()


def _updates(client: Client, experiment: Json, progress: TrialProgress) -> Iterator[Json]:
    """Yield the experiment at each poll, after adding its new events to `progress`. The last one has ended."""
    while True:
        try:
            experiment = _updated(client, experiment, progress)
            progress.outage.over()
        except (Unreachable, Refused) as error:
            progress.outage.seen(error)
        yield experiment
        if experiment["status"] in ENDED and progress.outage.why is None:
            return
        time.sleep(POLL_SECONDS)


def _updated(client: Client, experiment: Json, progress: TrialProgress) -> Json:
    experiment = client.experiment(experiment["id"])
    for event in client.events(experiment["id"], after=progress.last_event):
        progress.add(event)
    return experiment


def _follow_live(updates: Iterable[Json], progress: TrialProgress, console: Console) -> Json:
    experiment: Json = {}
    with Live(console=console, refresh_per_second=4) as view:
        for experiment in updates:
            view.update(_live_view(experiment, progress, console.height))
    return experiment


def _live_view(experiment: Json, progress: TrialProgress, height: int) -> RenderableType:
    """What fits in the terminal: what scrolls out of a live view is drawn twice."""
    objective = experiment["spec"]["objectives"][0]
    rows = min(MAX_ROWS, max(MIN_ROWS, height - OTHER_LINES))
    maximize = objective["direction"] == "maximize"
    now = datetime.now(UTC)
    table = live_table(progress.curves, metric=progress.metric, maximize=maximize, rows=rows, now=now)
    above = progress_view.live_view(experiment, progress)
    return above if table is None else Group(above, "", table)


def _follow_plain(updates: Iterable[Json], progress: TrialProgress, console: Console) -> Json:
    experiment: Json = {}
    printed, printed_at = "", 0.0
    for experiment in updates:
        for sentence in progress.pop_sentences():
            console.print(plain(sentence), soft_wrap=True)
        now, line = time.monotonic(), progress_view.status_line(experiment, progress)
        if line != printed and now - printed_at >= STATUS_LINE_SECONDS:
            printed, printed_at = line, now
            console.print(plain(line), soft_wrap=True)
    return experiment


def _summary(client: Client, experiment: Json, progress: TrialProgress) -> Iterator[tuple[str, str]]:
    yield from progress_view.summary(experiment, progress)
    yield "API", f"{client.url}/v1/experiments/{experiment['name']}"
    with contextlib.suppress(Unreachable, Refused):  # the experiment has ended all the same
        if page := mlflow_page(client, experiment):
            yield "MLflow", page


def mlflow_page(client: Client, experiment: Json) -> str | None:
    """Return the address of an ended experiment's page; where there is none yet, MLflow's, and why. None: no MLflow."""
    server, deadline = client.readiness()["mlflow_url"], time.monotonic() + MLFLOW_SECONDS
    page: str | None = experiment["mlflow_url"]
    while server and not page and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        experiment = client.experiment(experiment["id"])
        page = experiment["mlflow_url"]
    if page or not server:
        return page
    return f"{server} has no page of it yet: {experiment['mlflow_error'] or 'its events are still being written'}"
