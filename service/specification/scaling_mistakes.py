"""What an elastic worker group requires."""

from collections.abc import Iterator

from search.mistakes import Mistake
from trainer.wire import Kind, Trainer


def mistakes_in_scaling(trainer: Trainer) -> Iterator[Mistake]:
    """Yield mistakes with paths below `trainer`."""
    scaling = trainer.scaling
    if scaling.elastic_resize_monitor_interval_s is not None and not scaling.is_elastic:
        yield Mistake(
            ("scaling", "elastic_resize_monitor_interval_s"),
            f"is for an elastic group, as with num_workers: {{min: 1, max: {max(2, scaling.num_workers)}}}; "
            f"this one always has {scaling.num_workers}",
        )
    if scaling.is_elastic and trainer.kind is Kind.EXTERNAL:
        yield Mistake(
            ("scaling", "num_workers"), "must be a number with kind external, whose programs start their own workers"
        )
