"""What excludes an objective with `report: best`."""

from collections.abc import Iterator, Sequence

from search.mistakes import Mistake
from service.specification.cross_field_checks.pbt_checks import NOT_WITH_PBT
from service.specification.spec_sections import Objective


def mistakes_in_best_report(
    objectives: Sequence[Objective], *, is_constrained: bool, is_population: bool
) -> Iterator[Mistake]:
    """The best report of one metric says nothing of the others at that step."""
    for index, objective in enumerate(objectives):
        if not objective.takes_best:
            continue
        path = ("objectives", index, "report")
        if len(objectives) > 1:
            yield Mistake(
                path,
                "works with one objective only: the best values of several may come from different reports; leave "
                "it out",
            )
        if is_constrained:
            yield Mistake(
                path,
                "does not work with constraints: the best report need not be one that satisfies them; leave one of "
                "them out",
            )
        if is_population:
            yield Mistake(path, NOT_WITH_PBT)
