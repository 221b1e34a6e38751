"""Access tokens: created here, shown once, stored as digests."""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, or_, select, update
from sqlalchemy.orm import Session

from service.domain.roles import Role
from service.domain.token_digest import token_digest
from service.errors import NameTaken, NotFound
from service.store.sql.database import Database, clock_of, database_now
from service.store.tables import TokenRow


@dataclass(frozen=True)
class Access:
    """What a valid token allows."""

    name: str
    role: Role
    digest: str


@dataclass(frozen=True)
class Expired:
    """A token that was valid until `at`. `is_replaced`: there is a newer one."""

    name: str
    at: datetime
    is_replaced: bool


def create_token(database: Database, name: str, role: Role, lifetime: timedelta | None = None) -> str:
    """Returns the token, which cannot be read again. Without `lifetime` it never expires. Raises NameTaken."""
    token = _new_token()
    with database.write() as session:
        if session.get(TokenRow, name) is not None:
            raise NameTaken(
                f"a token named {name!r} exists already; choose another name, replace it with `paceline token rotate`, "
                f"or remove it first"
            )
        now = database_now(session)
        row = TokenRow(name=name, role=role, digest=token_digest(token), created_at=now)
        row.expires_at = now + lifetime if lifetime is not None else None
        session.add(row)
    return token


def rotate_token(
    database: Database, name: str, *, overlap: timedelta = timedelta(0), lifetime: timedelta | None = None
) -> str:
    """Returns a new token with the name and role of the present one, which stays valid for `overlap`.

    Without `lifetime`, the new one gets that of the present one. Raises NotFound.
    """
    token = _new_token()
    with database.write() as session:
        row = _find(session, name)
        now = database_now(session)
        if lifetime is None and row.expires_at is not None:
            lifetime = row.expires_at - row.created_at
        row.previous_digest = row.digest
        row.previous_expires_at = min(now + overlap, row.expires_at or now + overlap)
        row.digest, row.created_at = token_digest(token), now
        row.expires_at = now + lifetime if lifetime is not None else None
    return token


def remove_token(database: Database, name: str) -> None:
    """Calls with the token are refused from now on. Raises NotFound."""
    with database.write() as session:
        session.delete(_find(session, name))


def all_tokens(database: Database) -> Sequence[TokenRow]:
    with database.read() as session:
        return session.scalars(select(TokenRow).order_by(TokenRow.name)).all()


def any_token(database: Database) -> bool:
    with database.read() as session:
        return bool(session.scalar(select(func.count()).select_from(TokenRow)))


def access_of(database: Database, token: str) -> Access | Expired | None:
    """None for what is no access token."""
    digest = token_digest(token)
    with database.read() as session:
        has_digest = or_(TokenRow.digest == digest, TokenRow.previous_digest == digest)
        query = select(TokenRow, clock_of(session.get_bind().dialect.name)).where(has_digest)
        found = session.execute(query).first()
    if found is None:
        return None
    row, now = found
    until = row.expires_at if row.digest == digest else row.previous_expires_at
    if until is not None and until <= now:
        return Expired(row.name, until, is_replaced=row.digest != digest)
    return Access(row.name, Role(row.role), digest)


def valid_digests(database: Database, digests: Collection[str]) -> set[str]:
    """The digests that belong to valid tokens."""
    with database.read() as session:
        now = clock_of(session.get_bind().dialect.name)
        is_present = or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > now)
        present = select(TokenRow.digest).where(TokenRow.digest.in_(digests), is_present)
        previous = select(TokenRow.previous_digest).where(
            TokenRow.previous_digest.in_(digests), TokenRow.previous_expires_at > now
        )
        return {digest for query in (present, previous) for digest in session.scalars(query) if digest is not None}


def store_use(database: Database, names: Collection[str]) -> None:
    """The tokens with these names were used just now."""
    with database.write() as session:
        session.execute(update(TokenRow).where(TokenRow.name.in_(names)).values(last_used_at=database_now(session)))


def _new_token() -> str:
    return f"pl_{secrets.token_urlsafe(32)}"


def _find(session: Session, name: str) -> TokenRow:
    row = session.get(TokenRow, name)
    if row is None:
        raise NotFound(f"there is no token {name!r}; `paceline token ls` shows all of them")
    return row
