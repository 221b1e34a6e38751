"""The error that answers a package of more bytes than the service takes."""

from service.errors import TooLarge


def package_too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"a package may have {limit / 1e6:g} MB; leave data and weights out and read them from shared storage"
        f" (the service's setting PACELINE_MAX_PACKAGE_BYTES is the limit)",
        max_bytes=limit,
    )
