"""Whether the search can try all the configurations of `enqueue`."""

from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from search.mistakes import Mistake
from search.space.space import Space


def mistakes_in_enqueue(
    enqueue: Sequence[Mapping[str, JsonValue]], space: Space, max_trials: int | None, max_search_trials: int | None
) -> Iterator[Mistake]:
    """`max_search_trials`: what `confirm` leaves of `max_trials`."""
    count = len(enqueue)
    if max_trials is not None and count > max_trials:
        yield Mistake(("enqueue",), f"has {count} entries, more than limits.max_trials")
    elif max_search_trials is not None and count > max_search_trials > 0:
        yield Mistake(
            ("enqueue",),
            f"has {count} entries, more than the {max_search_trials} trials that confirm leaves of limits.max_trials "
            f"({max_trials})",
        )
    for index, params in enumerate(enqueue):
        for mistake in space.mistakes_in(params):
            yield mistake.under("enqueue", index)
