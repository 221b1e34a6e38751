"""What `early_stopping: {rule: pbt}` requires of the space and of the number of trials."""

from collections.abc import Iterator

from search.early_stopping.rules.pbt import MIN_MEMBERS, Pbt
from search.mistakes import Mistake
from search.space.space import Space

NOT_WITH_PBT = "does not work with pbt: its trials change their params on the way; leave one of them out"


def mistakes_in_pbt(pbt: Pbt, space: Space, max_trials: int | None) -> Iterator[Mistake]:
    for mistake in pbt.mistakes_in_names(space):
        yield mistake.under("early_stopping")
    if max_trials is None or max_trials < MIN_MEMBERS:
        number = "a number, " if max_trials is None else ""
        yield Mistake(("limits", "max_trials"), f"is the population of pbt: must be {number}{MIN_MEMBERS} or more")
