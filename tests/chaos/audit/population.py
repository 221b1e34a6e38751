"""Population-based training, recomputed from the events in their order.

When each member has paused at the end of a generation or has ended, the rule of the search package decides, on the
reported values alone, who exploits whom; the service's tables and caches play no part. The run must have done the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from search.early_stopping import InMemoryHistory, Release
from search.early_stopping.in_memory_paused_trials import InMemoryPausedTrials
from search.early_stopping.rules.pbt import Pbt
from search.space.space import Params
from service.specification.models import ExperimentSpec
from tests.chaos.audit.decisions import Facts, facts, facts_of
from tests.chaos.evidence.snapshot import Event, Experiment

LIVE = {"queued", "running"}


def population(experiment: Experiment) -> Iterator[str]:
    replayed = _Population(ExperimentSpec.model_validate(experiment.spec))
    for event in experiment.events:
        yield from (f"event {event.seq}: {what}" for what in replayed.take(event))
    for trial in experiment.trials:
        member = replayed.members[trial.id]
        if member.due:
            yield f"trial {trial.number} lacks decisions: {member.due}"
        if member.exploit is not None:
            yield f"trial {trial.number} did not begin its next generation: {member.exploit}"


@dataclass
class _Member:
    """A trial as its events show it. `due` are the decisions that must follow; `exploit` is the next generation's."""

    number: int
    params: Params
    status: str = "queued"
    paused_at: int | None = None
    value: float = 0.0
    saved: tuple[int, str] | None = None
    due: list[Facts] = field(default_factory=list)
    exploit: dict[str, Any] | None = None


class _Population:
    def __init__(self, spec: ExperimentSpec) -> None:
        assert isinstance(spec.early_stopping, Pbt)
        self._rule, self._spec = spec.early_stopping, spec
        self.members: dict[str, _Member] = {}

    def take(self, event: Event) -> Iterator[str]:
        if event.kind == "trial.created" and event.trial:
            self.members[event.trial] = _Member(event.data["number"], event.data["params"])
        member = self.members.get(event.trial or "")
        if member is None:
            return
        match event.kind:
            case "report":
                self._report(member, event)
            case "checkpoint":
                member.saved = event.data["step"], event.data["uri"]
            case "decision":
                yield from self._decision(member, facts_of(event.data))
            case "trial.exploited":
                yield from self._exploit(member, event)
            case "trial.created":
                pass
            case kind if kind.startswith("trial."):
                member.status = kind.removeprefix("trial.")

    def _report(self, member: _Member, event: Event) -> None:
        step, value = event.data["step"], event.data["metrics"]["loss"]
        if step % self._rule.interval == 0 and step < self._rule.max_step:
            member.value = value
            member.due.append(facts("pause", step, value, None, 0))

    def _decision(self, member: _Member, found: Facts) -> Iterator[str]:
        milestone = int(found["milestone"])
        if found["decision"] == "pause":
            member.paused_at = milestone
        elif member.paused_at == milestone and not member.due:
            yield from self._end_generation(milestone)
        expected = member.due.pop(0) if member.due else None
        if found != expected:
            yield f"the decision on trial {member.number} is {found}; it must be {expected}"

    def _end_generation(self, milestone: int) -> Iterator[str]:
        """Compute what must follow for each member, at the first decision of those that end the generation."""
        if self._spec.has_room(len(self.members)):
            yield f"the generation of step {milestone} ends with {len(self.members)} members"
        early = [one.number for one in self.members.values() if one.status in LIVE]
        if early:
            yield f"the generation of step {milestone} ends before trials {early} have reached it"
        by_number = {one.number: one for one in self.members.values()}
        for release in self._releases(milestone):
            member = by_number[release.number]
            member.paused_at = None
            member.due.append(facts(release.decision, milestone, release.value, release.cutoff, release.compared_count))
            member.exploit = _next_generation(release, by_number)

    def _releases(self, milestone: int) -> list[Release]:
        there = [one for one in self.members.values() if one.paused_at == milestone]
        paused = InMemoryPausedTrials(
            InMemoryHistory(),
            self._spec.compared_metric.name,
            self._spec.compared_metric.direction,
            self._spec.space,
            seed=self._spec.search.seed or 0,
            others_may_come=False,
            params={one.number: one.params for one in there},
            saved_steps={one.number: one.saved[0] for one in there if one.saved},
        )
        for one in there:
            paused.pause(one.number, milestone, one.value, pool=0)
        return list(self._rule.releases(paused))

    def _exploit(self, member: _Member, event: Event) -> Iterator[str]:
        found = {name: event.data[name] for name in ("donor", "params", "checkpoint")}
        if found != member.exploit:
            yield f"trial {member.number} goes on with {found}; it must be {member.exploit}"
        member.exploit = None
        member.params = event.data["params"]
        member.saved = event.data["checkpoint"]["step"], event.data["checkpoint"]["uri"]


def _next_generation(release: Release, members: dict[int, _Member]) -> dict[str, Any] | None:
    """What a member takes over; None if it goes on as it is."""
    if release.donor is None:
        return None
    saved = members[release.donor].saved
    assert saved is not None
    return {"donor": release.donor, "params": release.params, "checkpoint": {"uri": saved[1], "step": saved[0]}}
