"""The error that answers a package of more bytes than the service takes."""

from service.errors import TooLarge


def package_too_large(limit: int, size: int | None = None) -> TooLarge:
    """`size`: that of the package, if it is known."""
    known = "" if size is None else f", this one has {size / 1e6:.6g} MB"
    return TooLarge(
        f"a package may have at most {limit / 1e6:g} MB{known}; leave data and weights out and read them from "
        "shared storage (the service's setting PACELINE_MAX_PACKAGE_BYTES is the limit)",
        max_bytes=limit,
    )
