"""Pieces of work that do not depend on each other: an error of one must not keep the others from being done."""

from collections.abc import Callable, Iterable


def sum_of_all(work: Iterable[Callable[[], int]]) -> int:
    """Do everything, even if some of it fails; then raise the errors as an ExceptionGroup."""
    total, pieces, errors = 0, 0, []
    for piece in work:
        pieces += 1
        try:
            total += piece()
        except Exception as error:  # noqa: BLE001 - raised below, after the other pieces
            errors.append(error)
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {pieces} failed", errors)
    return total
