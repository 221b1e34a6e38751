"""The descriptions that MLflow shows beside its runs, in Markdown, for people."""

from collections.abc import Mapping
from typing import Any

import yaml

from service.store.tables import ExperimentRow, TrialRow

_ORDER = ("completed", "pruned", "failed", "stopped", "running", "queued")


def counts(by_status: Mapping[str, int]) -> str:
    """`20 completed, 11 pruned, 1 failed`"""
    return ", ".join(f"{by_status[status]} {status}" for status in _ORDER if by_status.get(status)) or "none yet"


def objective(experiment: ExperimentRow) -> str:
    """`maximize val_accuracy`, and so on for each objective."""
    return ", ".join(f"{one.get('direction', 'minimize')} {one['metric']}" for one in experiment.spec["objectives"])


def experiment(row: ExperimentRow, by_status: Mapping[str, int], best: TrialRow | None) -> str:
    """The first line is what the table of runs has room for; there, Markdown is not rendered."""
    ended = f" ({row.end_reason})" if row.end_reason else ""
    lines = [f"{row.status}{ended}: {objective(row)}; {counts(by_status)}"]
    if best is not None:
        lines += ["", f"Best is trial {best.number}:", *(f"- {name}: `{value}`" for name, value in best.params.items())]
    return "\n".join([*lines, "", "```yaml", spec_yaml(row).rstrip(), "```"])


def spec_yaml(row: ExperimentRow) -> str:
    return yaml.safe_dump(_without_nothing(row.spec), sort_keys=False, allow_unicode=True, width=100)


def trial_end(status: str, data: Mapping[str, Any]) -> str:
    """`pruned: 0.52 at step 3 is below …`, or `completed at step 20`"""
    if data.get("reason"):
        return f"{status}: {data['reason']}"
    return status if data.get("step") is None else f"{status} at step {data['step']}"


def _without_nothing(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if value not in (None, {}, [])}
