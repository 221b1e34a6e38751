"""Hosts as requests name them (RFC 9110, section 7.2), and the patterns of `PACELINE_HOSTS`."""

import re
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Self

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+;=%-]*)(?::([0-9]{0,5}))?")


@dataclass(frozen=True)
class Authority:
    """`host` is in lower case, without brackets or a trailing dot; an IP address is in its canonical form."""

    host: str
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the value of a Host header. It has no userinfo. Raises ValueError."""
        found = _AUTHORITY.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not a host with an optional port")
        host, port = found.groups()
        name = str(IPv6Address(host[1:-1])) if host.startswith("[") else host.lower().removesuffix(".")
        return cls(canonical_host(name), int(port) if port else None)

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine for each client: `localhost` or a loopback address."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def same_as(self, other: "Authority", default_port: int) -> bool:
        return self.host == other.host and (self.port or default_port) == (other.port or default_port)


def canonical_host(host: str) -> str:
    """The host in lower case, or the IP address; the IPv4 address for an IPv6 address that only wraps it."""
    with suppress(ValueError):
        address = ip_address(host)
        return str((isinstance(address, IPv6Address) and address.ipv4_mapped) or address)
    return host.lower()


@dataclass(frozen=True)
class HostPattern:
    """`name` on any port, `name:port`, `*.name` (all names below it) or `*` (all hosts)."""

    authority: Authority
    below: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError."""
        below = text.startswith("*.") or text == "*"
        authority = Authority.parse(text.removeprefix("*").removeprefix("."))
        if "*" in authority.host or not (authority.host or below):
            raise ValueError(f"{text!r} is neither `name`, `name:port`, `*.name` nor `*`")
        return cls(authority, below)

    def matches(self, other: Authority) -> bool:
        if self.authority.port not in {None, other.port}:
            return False
        if not self.below:
            return self.authority.host == other.host
        return not self.authority.host or other.host.endswith(f".{self.authority.host}")
