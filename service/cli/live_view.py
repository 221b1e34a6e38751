"""Following an experiment in the terminal: a live view, or plain lines where there is no terminal."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from service.cli.client import Client
from service.cli.progress import Progress, best_line, counted, live, summary

POLL_SECONDS = 0.5
PLAIN_LINE_SECONDS = 10
ENDED = frozenset({"completed", "failed", "stopped"})

Json = dict[str, Any]


def watch(client: Client, name: str, console: Console) -> Json:
    """Show the experiment until it has ended, then its best trial; return the experiment as it ended."""
    experiment = client.experiment(name)
    progress = Progress(metric=experiment["spec"]["objectives"][0]["metric"])
    follow = _live if console.is_terminal else _plain
    experiment = follow(client, experiment, progress, console)
    console.print()
    for label, text in _summary(client, experiment, progress):
        console.print(Text.assemble((f"{label:<12}", "bold"), text), soft_wrap=True)
    return experiment


def _updates(client: Client, experiment: Json, progress: Progress) -> Iterator[Json]:
    """Yield the experiment again and again, the progress brought up to date before; the last one has ended."""
    while True:
        experiment = client.experiment(experiment["id"])
        for event in client.events(experiment["id"], after=progress.seen):
            progress.take(event)
        yield experiment
        if experiment["status"] in ENDED:
            return
        time.sleep(POLL_SECONDS)


def _live(client: Client, experiment: Json, progress: Progress, console: Console) -> Json:
    with Live(console=console, refresh_per_second=4) as view:
        for newest in _updates(client, experiment, progress):
            experiment = newest
            view.update(live(experiment, progress, elapsed_seconds(experiment)))
    return experiment


def _plain(client: Client, experiment: Json, progress: Progress, console: Console) -> Json:
    line, said_at = "", 0.0
    for newest in _updates(client, experiment, progress):
        experiment = newest
        for sentence in progress.told():
            console.print(Text(sentence), soft_wrap=True)
        now, state = time.monotonic(), _state(experiment, progress)
        if state != line and now - said_at >= PLAIN_LINE_SECONDS:
            line, said_at = state, now
            console.print(Text(state), soft_wrap=True)
    return experiment


def _state(experiment: Json, progress: Progress) -> str:
    total = experiment["spec"]["limits"]["max_trials"]
    parts = [f"{experiment['name']}: {progress.finished}/{total} trials", counted(progress.statuses.values())]
    waiting, best = experiment.get("waiting_for"), best_line(experiment, progress.metric)
    parts += [f"waiting for {waiting}"] if waiting else []
    parts += [f"best {best}"] if best else []
    return "; ".join(part for part in parts if part)


def elapsed_seconds(experiment: Json) -> float:
    began = datetime.fromisoformat(experiment["created_at"])
    ended = experiment.get("ended_at")
    return ((datetime.fromisoformat(ended) if ended else datetime.now(UTC)) - began).total_seconds()


def _summary(client: Client, experiment: Json, progress: Progress) -> Iterator[tuple[str, str]]:
    yield from summary(experiment, experiment.get("best"), progress)
    yield "API", f"{client.url}/v1/experiments/{experiment['name']}"
    if experiment.get("mlflow_url"):
        yield "MLflow", experiment["mlflow_url"]
