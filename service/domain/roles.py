"""The roles of access tokens."""

from enum import StrEnum


class Role(StrEnum):
    """`read` may look, `write` may also change experiments, `agent` may claim trials, `admin` may do all of this."""

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
