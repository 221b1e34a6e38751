"""Pieces of work that do not depend on each other: an error of one must not keep the others from being done."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from service.runtime.context import Context
from service.store.sql.database import is_locked

logger = logging.getLogger(__name__)

Item = TypeVar("Item")


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


def change_all(context: Context, items: Sequence[Item], change: Callable[[Context, Item], int]) -> int:
    """Call `change` for every item, even if it fails for some, and wake the calls that wait for changes.

    Return the sum of what it returned. Raises all errors as an ExceptionGroup.
    """
    try:
        count = sum_of_all(partial(change, context, item) for item in items)
    except ExceptionGroup:
        context.notify_all()  # something may have changed
        raise
    if count:
        context.notify_all()
    return count


def skip_locked(
    change: Callable[[Context, Item], int], lock_of: Callable[[Item], str], locked: set[str]
) -> Callable[[Context, Item], int]:
    """`change` for a pass that is repeated: it leaves out all items of a lock that another transaction keeps.

    `lock_of` names the lock that the item needs, such as an experiment's id; those found locked are added to `locked`.
    So a pass waits once for each lock. What was changed before the lock was met is announced.
    """

    def change_unless_locked(context: Context, item: Item) -> int:
        name = lock_of(item)
        if name in locked:
            return 0
        try:
            return change(context, item)
        except DBAPIError as error:
            if not is_locked(error):
                raise
            locked.add(name)
            context.notify_all()
            logger.info("%s is locked by another transaction; the next pass tries it again", name)
            return 0

    return change_unless_locked
