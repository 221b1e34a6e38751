"""The addresses at which the service answers: several service processes may share one database.

All calls of a process go to one of them. When it does not answer, they move to the next one.
"""

import logging
import threading
from urllib.parse import urlsplit

logger = logging.getLogger("paceline")

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class ServiceAddresses:
    """`given` is one address, or several with commas between them. The service may announce more. Thread-safe.

    `certificates`: PEM, of the authorities to trust there; None: the usual ones.
    """

    def __init__(self, given: str, certificates: str | None = None) -> None:
        self.certificates = certificates
        self._given = [url.strip().rstrip("/") for url in given.split(",") if url.strip()]
        self._announced: list[str] = []
        self._position = 0
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return ",".join(self.all)

    @property
    def all(self) -> list[str]:
        """First those that were given."""
        return [*self._given, *self._announced]

    @property
    def current(self) -> str:
        addresses = self.all
        return addresses[self._position % len(addresses)]

    @property
    def has_others(self) -> bool:
        return len(self.all) > 1

    def leave(self, address: str) -> None:
        """Go to the next address, unless another call has left this one already."""
        with self._lock:
            if self.has_others and address == self.current:
                self._position = (self._position + 1) % len(self.all)
                logger.info("%s does not answer; going to %s", address, self.current)

    def announce(self, addresses: list[str]) -> None:
        """Take over the addresses that the service names, instead of those that it named before.

        One that may be another service from here, or that is not encrypted although the given ones are, is left out.
        """
        with self._lock:
            wanted = [one.rstrip("/") for one in addresses if self._is_usable(one)]
            found = [one for one in dict.fromkeys(wanted) if one not in self._given]
            if found == self._announced:
                return
            current = self.current
            self._announced = found
            self._position = self.all.index(current) if current in self.all else 0

    def _is_usable(self, address: str) -> bool:
        own, other = [urlsplit(one) for one in self._given], urlsplit(address)
        is_local = all(one.hostname in LOOPBACK for one in own)
        return other.scheme in {one.scheme for one in own} and (is_local or other.hostname not in LOOPBACK)
