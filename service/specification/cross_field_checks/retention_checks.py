"""What the rules by which checkpoints are kept require of the objectives and of the trainer."""

from collections.abc import Iterator, Sequence

from search.mistakes import Mistake
from service.specification.spec_sections import CheckpointsSpec, Objective
from trainer.wire import Kind


def mistakes_in_retention(rules: CheckpointsSpec, objectives: Sequence[Objective], kind: Kind) -> Iterator[Mistake]:
    metrics = [one.metric for one in objectives]
    if rules.metric is not None and rules.keep_best_trials is None:
        yield Mistake(("checkpoints", "metric"), "ranks trials for keep_best_trials: set that, too, or leave it out")
    if rules.metric is not None and rules.metric not in metrics:
        yield Mistake(("checkpoints", "metric"), f"must be the metric of an objective: {' or '.join(metrics)}")
    if rules.keep_best_trials is not None and kind is Kind.EXTERNAL:
        yield Mistake(
            ("checkpoints", "keep_best_trials"),
            "must be absent with trainer.kind external: the programs that save the checkpoints have to remove them",
        )
