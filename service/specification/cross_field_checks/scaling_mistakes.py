"""What the worker group of a specification requires and excludes."""

from collections.abc import Iterator

from search.mistakes import Mistake
from search.numbers_in_messages import counted
from trainer.wire import Kind, SelectorMember, Trainer

LABEL_SELECTOR = ("trainer", "scaling", "label_selector")


def mistakes_in_scaling(trainer: Trainer) -> Iterator[Mistake]:
    """Yield mistakes with paths below `trainer`."""
    scaling = trainer.scaling
    if scaling.elastic_resize_monitor_interval_s is not None and not scaling.is_elastic:
        yield Mistake(
            ("scaling", "elastic_resize_monitor_interval_s"),
            f"is for an elastic group, as with num_workers: {{min: 1, max: {max(2, scaling.num_workers)}}}; "
            f"this one always has {counted(scaling.num_workers, 'worker')}",
        )
    if isinstance(scaling.label_selector, list) and len(scaling.label_selector) != scaling.most_workers:
        yield Mistake(
            ("scaling", "label_selector"),
            f"is a list of {len(scaling.label_selector)}, and there are up to {scaling.most_workers} workers: "
            "give one object for each worker, or one, without a list, for all",
        )
    if scaling.is_elastic and trainer.kind is Kind.EXTERNAL:
        yield Mistake(
            ("scaling", "num_workers"), "must be a number with kind external, whose programs start their own workers"
        )


def without_selector_member(mistake: Mistake) -> Mistake:
    """Without what pydantic puts into the path of a mistake in a label selector."""
    path, place = mistake.path, len(LABEL_SELECTOR)
    is_inside = path[:place] == LABEL_SELECTOR and path[place : place + 1] and path[place] in set(SelectorMember)
    return Mistake((*path[:place], *path[place + 1 :]), mistake.message) if is_inside else mistake
