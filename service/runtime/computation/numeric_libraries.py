"""The numeric libraries behind proposals: imported after the start, and limited to one thread each."""

from threadpoolctl import threadpool_limits

from search.thread_safe_import import import_modules


def limit_threads() -> None:
    """A proposal's matrices are small: more threads slow down it and everything else. For what is imported already."""
    threadpool_limits(1)


def import_ahead() -> None:
    """Import what the first proposal needs, so that it does not wait for that."""
    import_modules("scipy.special")
    limit_threads()
