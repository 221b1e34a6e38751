"""Changes to the spec of a live experiment: a JSON merge patch (RFC 7396), and which fields it may change."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from search.mistakes import Mistake, parse
from search.plugins import Accepted
from search.space.forbidden import still_possible
from search.space.narrowed_space import mistakes_in_narrowing, without_dead_branches
from search.space.space import Space
from service.errors import Invalid
from service.specification.documents import check_values
from service.specification.hints.known_fields import places_of
from service.specification.merge_patch import RULE, changed_document
from service.specification.models import ExperimentSpec
from service.specification.parser import parse_spec
from service.specification.spec_sections import ConfirmSpec, Objective

CHANGEABLE = {
    "limits": "",
    "failures": "",
    "priority": "",
    "tags": "",
    "early_stopping": "",
    "space": " (only narrower)",
    "objectives": " (only their targets)",
    "checkpoints": " (not keep)",
}
"""The fields of a spec that may change while its experiment is live, with what restricts the change."""

_SPACE: TypeAdapter[Space] = TypeAdapter(Space)


@dataclass(frozen=True)
class Difference:
    """A field, as in `limits.max_trials`, with its value before and after a change."""

    field: str
    before: Any
    after: Any


def changed_spec(spec: ExperimentSpec, patch: Any) -> ExperimentSpec:
    """The spec with the patch merged into it.

    Raises Invalid with every mistake: each field that may not change, and each that would be wrong after the change.
    """
    if not isinstance(patch, dict):
        raise Invalid([Mistake((), f"must be an object of changes; these fields can be changed: {_changeable()}")])
    before = spec.model_dump(mode="json")
    document = changed_document(before, patch)
    refused = [
        Mistake((name,), _why_not_changeable(name))
        for name in patch
        if name not in CHANGEABLE and _without_nulls(document.get(name)) != _without_nulls(before.get(name))
    ]
    document |= {name: before[name] for name in before if name not in CHANGEABLE}
    document = {name: value for name, value in document.items() if name in before or name in CHANGEABLE}
    check_values(document)  # each patch is bounded, but many of them add up
    changed = frozenset(name for name in CHANGEABLE if document.get(name) != before.get(name))
    return _parse_changed(spec, document, refused, Accepted(changed))


def _why_not_changeable(name: str) -> str:
    meant = [place for place in places_of(name) if place.partition(".")[0] in CHANGEABLE]
    if name not in ExperimentSpec.model_fields and meant:
        return f"is unknown; did you mean {' or '.join(meant)}?"
    what = "cannot be changed after the submission" if name in ExperimentSpec.model_fields else "is unknown"
    return f"{what}; these fields can be changed: {_changeable()}"


def differences(before: ExperimentSpec, after: ExperimentSpec) -> list[Difference]:
    return list(_differences((), before.model_dump(mode="json"), after.model_dump(mode="json")))


def _parse_changed(
    spec: ExperimentSpec, document: dict[str, Any], mistakes: list[Mistake], accepted: Accepted
) -> ExperimentSpec:
    changed = None
    try:
        changed = parse_spec(_without_stale_values(document), accepted)
    except Invalid as error:
        mistakes += error.mistakes
    space = changed.space if changed else parse(_SPACE, document.get("space"))[0]
    if space is not None:
        mistakes += [mistake.under("space") for mistake in mistakes_in_narrowing(spec.space, space)]
    if changed is not None:
        mistakes += _objective_mistakes(spec, changed)
        if changed.checkpoints.keep != spec.checkpoints.keep:
            reason = f"cannot be changed: running attempts keep the newest {spec.checkpoints.keep}"
            mistakes.append(Mistake(("checkpoints", "keep"), reason))
    if mistakes or changed is None:
        raise Invalid(mistakes)
    return changed


def _without_nulls(value: Any) -> Any:
    """A null means the same as an absent field."""
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return value


def _without_stale_values(document: dict[str, Any]) -> dict[str, Any]:
    """The document without values that a narrowed space no longer has: in conditions, the grid's lists, `enqueue`."""
    space_document = document.get("space")
    if not isinstance(space_document, dict):
        return document
    space_document = without_dead_branches(space_document)
    space, _ = parse(_SPACE, space_document)
    if space is None:
        return {**document, "enqueue": []}
    return {
        **document,
        "forbid": still_possible(document.get("forbid", []), space),
        "space": space_document,
        "search": _search_within(document["search"], space),
        "enqueue": _enqueue_within(document, space),
    }


def _search_within(search: dict[str, Any], space: Space) -> dict[str, Any]:
    listed = search["options"].get("search_space")
    if not isinstance(listed, dict):
        return search
    kept = {
        name: [value for value in values if space.root[name].mistake_in(value) is None]
        for name, values in listed.items()
        if name in space.root
    }
    return {**search, "options": {**search["options"], "search_space": kept}}


def _enqueue_within(document: dict[str, Any], space: Space) -> list[Any]:
    kept = [params for params in document["enqueue"] if not space.mistakes_in(params)]
    limits = document.get("limits")
    max_trials = limits.get("max_trials") if isinstance(limits, dict) else None
    if not isinstance(max_trials, int):
        return kept
    confirm = document.get("confirm")
    most = max_trials - (ConfirmSpec.model_validate(confirm).trial_count if confirm else 0)
    return kept[:most] if most > 0 else kept


def _objective_mistakes(before: ExperimentSpec, after: ExperimentSpec) -> Iterator[Mistake]:
    if [(one.metric, one.direction, one.report) for one in after.objectives] != [
        (one.metric, one.direction, one.report) for one in before.objectives
    ]:
        objectives = ", ".join(_without_target(one) for one in before.objectives)
        yield Mistake(("objectives",), f"only targets can be changed; the objectives are [{objectives}]")


def _without_target(objective: Objective) -> str:
    report = f", report: {objective.report}" if objective.report else ""
    return f"{{metric: {objective.metric}, direction: {objective.direction}{report}}}"


def _differences(path: tuple[str, ...], before: Any, after: Any) -> Iterator[Difference]:
    if before == after and type(before) is type(after):
        return
    is_leaf = not isinstance(before, Mapping) or not isinstance(after, Mapping)
    if is_leaf or (path[:1] == (RULE,) and before.get("rule") != after.get("rule")):
        yield Difference(".".join(path), before, after)
        return
    for name in [*before, *(name for name in after if name not in before)]:
        yield from _differences((*path, name), before.get(name), after.get(name))


def _changeable() -> str:
    return ", ".join(f"{name}{restriction}" for name, restriction in CHANGEABLE.items())
