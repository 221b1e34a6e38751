"""How far an experiment is, folded from its events and told to a person."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

SHOWN_SENTENCES = 5
FINISHED = ("completed", "pruned", "failed", "stopped")
SHOWN = ("queued", "running", "paused", *FINISHED)
COLOURS = {
    "running": "cyan",
    "paused": "blue",
    "completed": "green",
    "pruned": "yellow",
    "failed": "red",
    "stopped": "magenta",
}

Json = dict[str, Any]


@dataclass(frozen=True)
class Saved:
    """What early stopping spared: `steps` is the longest completed trial's length less each stopped trial's, summed."""

    trials: int
    steps: int
    longest: int


@dataclass
class Progress:
    """`take` events in their order. `fresh` holds the sentences since the last `told`."""

    metric: str
    seen: int = 0
    statuses: dict[int, str] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=SHOWN_SENTENCES))
    fresh: list[str] = field(default_factory=list)

    def take(self, event: Json) -> None:
        self.seen = event["seq"]
        subject, _, what = event["kind"].partition(".")
        if subject == "trial" and what:
            self._take_trial(what, event["data"])

    def told(self) -> list[str]:
        sentences, self.fresh = self.fresh, []
        return sentences

    @property
    def finished(self) -> int:
        """How many have ended, or wait: with promotion most do so until the experiment ends."""
        return sum(status in (*FINISHED, "paused") for status in self.statuses.values())

    @property
    def saved(self) -> Saved:
        completed = [self.steps.get(number, 0) for number, status in self.statuses.items() if status == "completed"]
        pruned = [self.steps.get(number, 0) for number, status in self.statuses.items() if status == "pruned"]
        longest = max(completed, default=0)
        return Saved(len(pruned), sum(max(0, longest - steps) for steps in pruned), longest)

    def _take_trial(self, status: str, data: Json) -> None:
        number = data["number"]
        before = self.statuses.get(number) if status == "queued" else None
        self.statuses[number] = status
        if data.get("step") is not None:
            self.steps[number] = data["step"]
        sentence = _sentence(status, data, self.metric, queued_after=before)
        if sentence:
            self.last.append(sentence)
            self.fresh.append(sentence)


def _sentence(status: str, data: Json, metric: str, *, queued_after: str | None) -> str | None:
    trial, reason = f"trial {data['number']}", data.get("reason")
    because = f": {reason}" if reason else ""
    if status == "completed":
        values = data.get("values")
        return f"{trial} completed at step {data.get('step')}" + (
            f": {metric} {values[0]:.6g}" if values and values[0] is not None else ""
        )
    if queued_after == "running":
        return f"{trial} goes back to the queue{because}"
    if queued_after == "paused":
        return f"{trial} goes on{because}"
    words = {"paused": "waits", "pruned": "stopped early", "failed": "failed", "stopped": "stopped"}
    return f"{trial} {words[status]}{because}" if status in words else None


def counted(statuses: Iterable[str]) -> str:
    counts = Counter(statuses)
    return " · ".join(f"{counts[name]} {name}" for name in SHOWN if counts[name])


def parameters(params: Json) -> str:
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in params.items()
    )


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def remaining_seconds(finished: int, total: int, elapsed_seconds: float) -> float | None:
    """Return the time left if trials go on ending at the pace so far; None before the first has ended."""
    return elapsed_seconds / finished * (total - finished) if finished else None


def best_line(experiment: Json, metric: str) -> str | None:
    best = experiment.get("best")
    if not best:
        return None
    return f"{metric} {best['values'][0]:.6g} by trial {best['number']}: {parameters(best['params'])}"


def live(experiment: Json, progress: Progress, elapsed_seconds: float) -> RenderableType:
    total, finished = experiment["spec"]["limits"]["max_trials"], progress.finished
    left = remaining_seconds(finished, total, elapsed_seconds)
    lines: list[RenderableType] = [_bar(experiment, finished, total, elapsed_seconds, left), _counts(progress)]
    best = best_line(experiment, progress.metric)
    lines.append(Text("best     ", style="bold") + Text(best or "none yet", style="green" if best else "dim"))
    if experiment.get("waiting_for"):
        lines.append(Text(f"waiting for {experiment['waiting_for']}", style="yellow"))
    last = (Text(f"  {sentence}", style="dim", no_wrap=True, overflow="ellipsis") for sentence in progress.last)
    return Group(*lines, *last)


def _bar(experiment: Json, finished: int, total: int, elapsed: float, left: float | None) -> RenderableType:
    row = Table.grid(padding=(0, 1))
    about = "" if left is None or experiment["status"] not in ("running", "paused") else f"about {clock(left)} left"
    name = Text(experiment["name"], style="bold")
    row.add_row(
        name, ProgressBar(total=total, completed=finished, width=40), f"{finished}/{total}", clock(elapsed), about
    )
    return row


def _counts(progress: Progress) -> Text:
    counts = Counter(progress.statuses.values())
    text = Text("trials   ", style="bold")
    for name in SHOWN:
        if counts[name] or name == "running":
            text.append(f"{counts[name]} {name}  ", style=COLOURS.get(name, "dim"))
    return text


def summary(experiment: Json, best: Json | None, progress: Progress) -> list[tuple[str, str]]:
    """Return what stands at the end, as (label, text) pairs."""
    why = f" ({experiment['end_reason']})" if experiment.get("end_reason") else ""
    rows = [("experiment", f"{experiment['name']} {experiment['status']}{why}")]
    if experiment.get("end_detail"):
        rows.append(("why", experiment["end_detail"]))
    if experiment.get("traceback"):
        rows.append(("traceback", experiment["traceback"].rstrip()))
    rows.append(("trials", counted(progress.statuses.values()) or "none"))
    rows.extend(_best_rows(best, progress.metric) if best else [("best", _without_best(experiment))])
    saved = progress.saved
    if saved.trials:
        steps = f"which saved {saved.steps} training steps (against {saved.longest} for each)" if saved.steps else ""
        rows.append(("early stop", f"{saved.trials} trials stopped early{', ' + steps if steps else ''}"))
    return rows


def _without_best(experiment: Json) -> str:
    if len(experiment["spec"]["objectives"]) > 1:
        return f"paceline best {experiment['name']} shows the Pareto front of its objectives"
    kept = " and keeps the constraints" if experiment["spec"].get("constraints") else ""
    return f"no trial has a value{kept}"


def _best_rows(best: Json, metric: str) -> list[tuple[str, str]]:
    checkpoint = best.get("checkpoint")
    where = f"{checkpoint['uri']} (step {checkpoint['step']})" if checkpoint else "none was saved"
    return [
        ("best", f"{metric} {best['values'][0]:.6g}, trial {best['number']}"),
        ("parameters", parameters(best["params"])),
        ("checkpoint", where),
    ]
