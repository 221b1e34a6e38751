"""The parts of a URI, or path, in the storage."""


def split_query(uri: str) -> tuple[str, str, str]:
    """Return what is before the query, its mark `?`, and the query. A path has none: a `?` in it is part of a name."""
    return uri.partition("?") if is_uri(uri) else (uri, "", "")


def is_uri(storage: str) -> bool:
    """Whether it is a URI, and no path."""
    return "://" in storage and not storage.startswith("/")
