"""Configurations that a user enqueues in a live experiment: `{"params": {...}}`, or a list of these."""

from typing import Any

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter

from search.json_types import JsonModel
from search.mistakes import Mistake, parse
from search.space.space import Params
from service.errors import Invalid
from service.specification.hints.known_fields import with_known_fields

MAX_ENQUEUED = 1000
"""Per call."""


class EnqueuedTrial(JsonModel):
    """A configuration to run next."""

    model_config = ConfigDict(extra="forbid")

    params: dict[str, JsonValue] = Field(description="a value for each parameter that exists in this configuration")


_TRIAL: TypeAdapter[EnqueuedTrial] = TypeAdapter(EnqueuedTrial)
_TRIALS: TypeAdapter[list[EnqueuedTrial]] = TypeAdapter(list[EnqueuedTrial])


def parse_enqueued(document: Any) -> list[Params]:
    """The params of each configuration, not yet checked against the experiment's space.

    Raises Invalid with every mistake.
    """
    if not isinstance(document, list):
        trial, mistakes = parse(_TRIAL, document)
        trials = [trial] if trial else None
    elif 1 <= len(document) <= MAX_ENQUEUED:
        trials, mistakes = parse(_TRIALS, document)
    else:
        raise Invalid([Mistake((), f"must have 1 to {MAX_ENQUEUED} configurations, not {len(document)}")])
    if trials is None:
        raise Invalid([with_known_fields(mistake, list(EnqueuedTrial.model_fields)) for mistake in mistakes])
    return [trial.params for trial in trials]
