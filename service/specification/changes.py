"""Changes to the spec of a live experiment: a JSON merge patch (RFC 7396), and what it may touch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from search.mistakes import parse
from search.space.forbidden import still_possible
from search.space.narrowed_space import mistakes_in_narrowing, without_dead_branches
from search.space.space import Space
from service.errors import Invalid, Mistake
from service.specification.documents import mistakes_in_values
from service.specification.mistakes import readable
from service.specification.models import ExperimentSpec
from service.specification.parser import parse_spec

CHANGEABLE = {
    "limits": "",
    "failures": "",
    "priority": "",
    "tags": "",
    "early_stopping": "",
    "space": " (only narrower)",
    "objectives": " (only their targets)",
}
"""The fields of a spec that may change while its experiment lives."""

_SPACE: TypeAdapter[Space] = TypeAdapter(Space)


@dataclass(frozen=True)
class Difference:
    """A field, as in `limits.max_trials`, with its values."""

    field: str
    before: Any
    after: Any


def changed_spec(spec: ExperimentSpec, patch: Any) -> ExperimentSpec:
    """Raises Invalid with every mistake: what may not change, and what would be wrong afterwards."""
    if not isinstance(patch, dict):
        raise Invalid([Mistake("", f"must be an object of changes; what may be changed: {_changeable()}")])
    wrong = [readable(mistake) for mistake in mistakes_in_values(patch)]
    if wrong:
        raise Invalid(wrong)
    before = spec.model_dump(mode="json")
    document = _merged(before, patch)
    wrong = [
        Mistake(name, f"cannot be changed while the experiment lives; what may be changed: {_changeable()}")
        for name in patch
        if name not in CHANGEABLE and _bare(document.get(name)) != _bare(before.get(name))
    ]
    document |= {name: before[name] for name in before if name not in CHANGEABLE}
    document = {name: value for name, value in document.items() if name in before or name in CHANGEABLE}
    return _checked(spec, document, wrong)


def differences(before: ExperimentSpec, after: ExperimentSpec) -> list[Difference]:
    return list(_differences((), before.model_dump(mode="json"), after.model_dump(mode="json")))


def _checked(spec: ExperimentSpec, document: dict[str, Any], wrong: list[Mistake]) -> ExperimentSpec:
    changed = None
    try:
        changed = parse_spec(_fitting(document))
    except Invalid as error:
        wrong += error.mistakes
    space = changed.space if changed else parse(_SPACE, document.get("space"))[0]
    if space is not None:
        wrong += [readable(mistake.under("space")) for mistake in mistakes_in_narrowing(spec.space, space)]
    if changed is not None:
        wrong += _objective_mistakes(spec, changed)
    if wrong or changed is None:
        raise Invalid(wrong)
    return changed


def _merged(document: Any, patch: Any) -> Any:
    """As RFC 7396 says. Another rule of early stopping comes without the options of the one before."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    if "rule" in patch and patch["rule"] != merged.get("rule"):
        merged = {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


def _bare(value: Any) -> Any:
    """Without nulls, which say no more than what is not there."""
    if isinstance(value, dict):
        return {name: _bare(inner) for name, inner in value.items() if inner is not None}
    return value


def _fitting(document: dict[str, Any]) -> dict[str, Any]:
    """Without what was said of values that the space no longer has: by conditions, the grid's lists, `enqueue`."""
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
        "search": _fitting_search(document["search"], space),
        "enqueue": _fitting_enqueue(document, space),
    }


def _fitting_search(spec: dict[str, Any], space: Space) -> dict[str, Any]:
    listed = spec["options"].get("search_space")
    if not isinstance(listed, dict):
        return spec
    kept = {
        name: [value for value in values if space.root[name].mistake_in(value) is None]
        for name, values in listed.items()
        if name in space.root
    }
    return {**spec, "options": {**spec["options"], "search_space": kept}}


def _fitting_enqueue(document: dict[str, Any], space: Space) -> list[Any]:
    limits = document.get("limits")
    most = limits.get("max_trials") if isinstance(limits, dict) else None
    fitting = [params for params in document["enqueue"] if not space.mistakes_in(params)]
    return fitting[:most] if isinstance(most, int) and most > 0 else fitting


def _objective_mistakes(before: ExperimentSpec, after: ExperimentSpec) -> Iterator[Mistake]:
    same = [(one.metric, one.direction) for one in before.objectives]
    if [(one.metric, one.direction) for one in after.objectives] != same:
        told = ", ".join(f"{{metric: {metric}, direction: {direction}}}" for metric, direction in same)
        yield Mistake("objectives", f"only targets can be changed; the objectives are [{told}]")


def _differences(path: tuple[str, ...], before: Any, after: Any) -> Iterator[Difference]:
    if before == after and type(before) is type(after):
        return
    whole = not isinstance(before, Mapping) or not isinstance(after, Mapping)
    if whole or before.get("rule") != after.get("rule"):
        yield Difference(".".join(path), before, after)
        return
    for name in [*before, *(name for name in after if name not in before)]:
        yield from _differences((*path, name), before.get(name), after.get(name))


def _changeable() -> str:
    return ", ".join(f"{name}{how}" for name, how in CHANGEABLE.items())
