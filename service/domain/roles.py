"""Who may do what."""

from enum import StrEnum


class Role(StrEnum):
    """`read` looks, `write` steers experiments too, `agent` claims trials, `admin` does all of it."""

    READ = "read"
    WRITE = "write"
    AGENT = "agent"
    ADMIN = "admin"


MAY_ACT_AS: dict[Role, frozenset[Role]] = {
    Role.READ: frozenset({Role.READ}),
    Role.WRITE: frozenset({Role.READ, Role.WRITE}),
    Role.AGENT: frozenset({Role.READ, Role.AGENT}),
    Role.ADMIN: frozenset(Role),
}
