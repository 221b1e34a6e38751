"""The progress of an experiment as people see it: the live view, a status line, and the summary at the end."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from search.numbers_in_messages import counted
from service.cli.client.commands_in_messages import with_commands
from service.cli.terminal.progress import FINISHED, TrialProgress
from service.cli.terminal.text_layout import plain
from service.cli.terminal.value_texts import parameters
from service.domain import cost_summary

MAX_TRACEBACK_LINES = 40
"""Some messages print whole arrays."""
STATUSES = ("queued", "running", "paused", *FINISHED)
COLOURS = {
    "running": "cyan",
    "paused": "blue",
    "completed": "green",
    "pruned": "yellow",
    "failed": "red",
    "stopped": "magenta",
}

Json = dict[str, Any]


def live_view(experiment: Json, progress: TrialProgress) -> RenderableType:
    best = _best_text(experiment, progress.metric)
    lines: list[RenderableType] = [_progress_bar(experiment, progress.finished), _counts(progress)]
    lines.append(
        Text("best     ", style="bold") + plain(best or _why_no_best_yet(experiment), style="green" if best else "dim")
    )
    lines += [plain(text, style="yellow") for text in _hindrances(experiment)]
    recent = (plain(f"  {sentence}", style="dim", no_wrap=True, overflow="ellipsis") for sentence in progress.recent)
    return Group(*lines, *recent)


def status_line(experiment: Json, progress: TrialProgress) -> str:
    share = finished_share(experiment, progress.finished)
    parts = [
        f"{experiment['name']}: {share} trial{'' if share == '1' else 's'}",
        status_counts(progress.statuses.values()),
    ]
    parts += _hindrances(experiment)
    best = _best_text(experiment, progress.metric)
    parts += [f"best {best}"] if best else []
    return "; ".join(part for part in parts if part)


def finished_share(experiment: Json, finished: int) -> str:
    """`3/20`, or `3` if any number of trials may run"""
    most = experiment["spec"]["limits"]["max_trials"]
    return str(finished) if most is None else f"{finished}/{most}"


def waiting_text(experiment: Json) -> str:
    """What the experiment's trials wait for; empty if they do not."""
    missing = experiment.get("waiting_for")
    return f"waiting for {with_commands(missing)}" if missing else ""


def _hindrances(experiment: Json) -> list[str]:
    return list(filter(None, [waiting_text(experiment), experiment.get("missing_metrics")]))


def summary(experiment: Json, progress: TrialProgress) -> list[tuple[str, str]]:
    """Return the summary of an ended experiment as (label, text) pairs."""
    reason = f" ({experiment['end_reason']})" if experiment.get("end_reason") else ""
    rows = [("experiment", f"{experiment['name']} {experiment['status']}{reason}")]
    if experiment.get("end_detail"):
        rows.append(("reason", experiment["end_detail"]))
    if experiment.get("traceback"):
        rows.append(("traceback", shortened_traceback(experiment["traceback"])))
    rows.append(("trials", status_counts(progress.statuses.values()) or "none"))
    best = experiment.get("best")
    rows.extend(_best_rows(best, progress.metric) if best else [("best", _why_no_best(experiment))])
    if progress.verdict:
        rows.append(("confirmed", progress.verdict))
    rows.extend(_saved_rows(progress))
    if experiment.get("cost"):
        limits = experiment["spec"]["limits"]
        rows.append(("cost", cost_summary.summary(experiment["cost"], limits.get("max_gpu_hours"))))
    return rows


def shortened_traceback(traceback: str) -> str:
    """The first and the last lines: where it happened, and what."""
    lines = traceback.rstrip().splitlines()
    left_out, half = len(lines) - MAX_TRACEBACK_LINES, MAX_TRACEBACK_LINES // 2
    if left_out <= 0:
        return "\n".join(lines)
    gap = f"… {left_out} lines are left out here; the API shows all of them"
    return "\n".join([*lines[:half], gap, *lines[-half:]])


def status_counts(statuses: Iterable[str]) -> str:
    """`20 completed · 3 pruned`"""
    counts = Counter(statuses)
    return " · ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])


def clock(seconds: float) -> str:
    """`1:05`, `1:01:05`"""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def remaining_seconds(finished: int, total: int, elapsed_seconds: float) -> float | None:
    """Estimate the time left from the average so far; None before the first trial ends.

    More trials than the total may have finished: confirmations, or those before a change of the limit.
    """
    return elapsed_seconds / finished * max(0, total - finished) if finished else None


def _elapsed_seconds(experiment: Json) -> float:
    """At least 0, because the service's clock may be ahead of this machine's."""
    began = datetime.fromisoformat(experiment["created_at"])
    ended = experiment.get("ended_at")
    until = datetime.fromisoformat(ended) if ended else datetime.now(UTC)
    return max(0.0, (until - began).total_seconds())


def _progress_bar(experiment: Json, finished: int) -> RenderableType:
    limits, elapsed = experiment["spec"]["limits"], _elapsed_seconds(experiment)
    total, done = limits["max_trials"], float(finished)
    if total is None:
        total, done = limits.get("max_seconds"), elapsed  # without either, rich draws a bar that moves
    if total is None and experiment["status"] not in ("running", "paused"):
        total = done = 1.0
    left = _time_left(limits, finished, elapsed) if experiment["status"] in ("running", "paused") else ""
    name, bar = plain(experiment["name"], style="bold"), ProgressBar(total=total, completed=done, width=40)
    row = Table.grid(padding=(0, 1))
    row.add_row(name, bar, finished_share(experiment, finished), clock(elapsed), left)
    return row


def _time_left(limits: Json, finished: int, elapsed: float) -> str:
    """An estimate from the trials so far or, if any number may run, what the time limit leaves; empty if unknown."""
    if limits["max_trials"] is not None:
        left = remaining_seconds(finished, limits["max_trials"], elapsed)
        return "" if left is None else f"about {clock(left)} left"
    seconds = limits.get("max_seconds")
    return "" if seconds is None else f"at most {clock(max(0.0, seconds - elapsed))} left"


def _counts(progress: TrialProgress) -> Text:
    counts = Counter(progress.statuses.values())
    text = Text("trials   ", style="bold")
    for status in STATUSES:
        if counts[status] or status == "running":
            text.append(f"{counts[status]} {status}  ", style=COLOURS.get(status, "dim"))
    return text


def _best_text(experiment: Json, metric: str) -> str | None:
    best = experiment.get("best")
    if not best:
        return None
    return f"{metric} {best['value']:.6g} by trial {best['number']}: {parameters(best['params'])}"


def _best_rows(best: Json, metric: str) -> list[tuple[str, str]]:
    checkpoint = best.get("checkpoint")
    where = f"{checkpoint['uri']} (step {checkpoint['step']})" if checkpoint else "none was saved"
    return [
        ("best", f"{metric} {best['value']:.6g}, trial {best['number']}"),
        ("parameters", parameters(best["params"])),
        ("checkpoint", where),
    ]


def _why_no_best_yet(experiment: Json) -> str:
    return "none yet" if len(experiment["spec"]["objectives"]) == 1 else _why_no_best(experiment)


def _why_no_best(experiment: Json) -> str:
    if len(experiment["spec"]["objectives"]) > 1:
        return f"paceline best {experiment['name']} shows the Pareto front of its objectives"
    constrained = bool(experiment["spec"].get("constraints"))
    return f"no trial that ran to its end {'satisfies the constraints' if constrained else 'has a value'}"


def _saved_rows(progress: TrialProgress) -> list[tuple[str, str]]:
    saved = progress.saved
    if not saved.trials:
        return []
    trials = f"{counted(saved.trials, 'trial')} stopped early"
    steps = (
        f", which saved {counted(saved.steps, 'training step')} (a full trial takes {saved.longest})"
        if saved.steps
        else ""
    )
    return [("early stop", trials + steps)]
