"""The generations of a trial, from its events: the params that it trained with, and which attempts ran with them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.chaos.evidence.snapshot import Event, Experiment, Trial


@dataclass(frozen=True)
class Generation:
    """It lasts from the event after `after` to that of `until`; None: to the trial's end."""

    number: int
    params: Mapping[str, Any]
    after: int
    until: int | None

    def has(self, event: Event) -> bool:
        return self.after < event.seq and (self.until is None or event.seq <= self.until)


def generations(experiment: Experiment, trial: Trial) -> list[Generation]:
    """A trial has one, and another one for each time that it exploited a donor."""
    own = [event for event in experiment.events if event.trial == trial.id]
    begins = [event for event in own if event.kind in {"trial.created", "trial.exploited"}]
    ends = [*(event.seq for event in begins[1:]), None]
    return [
        Generation(number, event.data["params"], event.seq if number else 0, until)
        for number, (event, until) in enumerate(zip(begins, ends, strict=True))
    ]


def params_of_attempts(experiment: Experiment, trial: Trial) -> dict[int, Mapping[str, Any]]:
    """The params that each attempt ran with, by its number."""
    known = generations(experiment, trial)
    starts = [event for event in experiment.events if (event.kind, event.trial) == ("trial.running", trial.id)]
    return {event.data["attempt"]: one.params for event in starts for one in known if one.has(event)}
