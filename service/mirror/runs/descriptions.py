"""The descriptions of MLflow's runs, in Markdown, and texts for tags."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from search.numbers_in_messages import counted
from service.mirror.runs.pareto_front import ParetoFront
from service.store.tables import ExperimentRow, TrialRow

MAX_MEMBERS = 20
_ORDER = ("completed", "pruned", "failed", "stopped", "running", "paused", "queued")


def counts(by_status: Mapping[str, int]) -> str:
    """`20 completed, 11 pruned, 1 failed`"""
    return ", ".join(f"{by_status[status]} {status}" for status in _ORDER if by_status.get(status)) or "none yet"


def num_workers(scaling: Mapping[str, Any]) -> str | int | None:
    """`1 to 4` for an elastic group"""
    least, most = scaling.get("num_workers"), scaling.get("max_workers")
    return least if most is None else f"{least} to {most}"


def objective(experiment: ExperimentRow) -> str:
    """`maximize val_accuracy`, and so on for each objective."""
    return ", ".join(f"{one.get('direction', 'minimize')} {one['metric']}" for one in experiment.spec["objectives"])


def experiment(
    row: ExperimentRow, by_status: Mapping[str, int], best: TrialRow | None, front: ParetoFront | None
) -> str:
    """The first line is plain text, since MLflow's table of runs shows only that."""
    ended = f" ({row.end_reason})" if row.end_reason else ""
    lines = [f"{row.status}{ended}: {objective(row)}; {counts(by_status)}"]
    if row.end_detail:
        lines += ["", row.end_detail]
    if best is not None:
        lines += ["", f"Best is trial {best.number}:", *(f"- {name}: `{value}`" for name, value in best.params.items())]
    if front is not None and front.members:
        lines += ["", *_front(row, front)]
    return "\n".join([*lines, "", "```yaml", spec_yaml(row).rstrip(), "```"])


def _front(row: ExperimentRow, front: ParetoFront) -> Iterator[str]:
    """Yield the lines of a table, sorted by the first objective, best first."""
    names = [one["metric"] for one in row.spec["objectives"]]
    members = sorted(front.members, key=lambda one: one.values, reverse=front.directions[0] == "maximize")
    listed = members[:: max(1, -(-len(members) // MAX_MEMBERS))]
    shown = f", {len(listed)} shown" if len(listed) < len(members) else ""
    yield f"Pareto front ({counted(len(members), 'trial')}{shown}):"
    yield ""
    yield f"| trial | {' | '.join(names)} |"
    yield f"| --- |{' --- |' * len(names)}"
    for one in listed:
        yield f"| {one.number} | {' | '.join(f'{value:.6g}' for value in one.values)} |"


def spec_yaml(row: ExperimentRow) -> str:
    return yaml.safe_dump(_without_empty_fields(row.spec), sort_keys=False, allow_unicode=True, width=100)


def trial_end(status: str, data: Mapping[str, Any]) -> str:
    """`pruned: 0.52 at step 3 is below …`, or `completed at step 20`"""
    if data.get("reason"):
        return f"{status}: {data['reason']}"
    return status if data.get("step") is None else f"{status} at step {data['step']}"


def exploit(data: Mapping[str, Any]) -> str:
    """`continues as generation 2 from trial 3's checkpoint at step 10`"""
    where = f"trial {data.get('donor')}'s checkpoint at step {(data.get('checkpoint') or {}).get('step')}"
    return f"continues as generation {data.get('generation')} from {where}"


def warm_start(sources: Sequence[Mapping[str, Any]]) -> str:
    """`digits-july: 20 taken, 3 left out`"""
    return "; ".join(
        f"{one['experiment']}: {one['taken']} taken, {sum(one['left_out'].values())} left out" for one in sources
    )


def search_choice(data: Mapping[str, Any]) -> dict[str, str]:
    """`tpe: early stopping may end trials, and …`, for the sampler and the rule, as far as the service chose them."""
    sampler, rule = data["sampler"], data["early_stopping"]
    named = {"sampler": (sampler["name"], sampler["why"]), "early_stopping": (rule["options"]["rule"], rule["why"])}
    return {name: f"{chosen}: {why}" for name, (chosen, why) in named.items() if why}


def change(before: Any, after: Any) -> str:
    """`10 -> 20`, `nothing -> 60`"""
    return " -> ".join("nothing" if value is None else json.dumps(value) for value in (before, after))


def _without_empty_fields(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if value not in (None, {}, [])}
