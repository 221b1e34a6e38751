"""Access tokens: created here, shown once, stored as digests."""

import hashlib
import secrets
from collections.abc import Sequence

from sqlalchemy import func, select

from service.domain.roles import Role
from service.errors import NameTaken, NotFound
from service.store.sql.database import Database, database_now
from service.store.tables import TokenRow


def create_token(database: Database, name: str, role: Role) -> str:
    """Returns the token, which cannot be read again. Raises NameTaken."""
    token = f"pl_{secrets.token_urlsafe(32)}"
    with database.write() as session:
        if session.get(TokenRow, name) is not None:
            raise NameTaken(f"a token named {name!r} exists already; remove it first or choose another name")
        session.add(TokenRow(name=name, role=role, digest=_digest(token), created_at=database_now(session)))
    return token


def remove_token(database: Database, name: str) -> None:
    """Calls with the token are refused from now on. Raises NotFound."""
    with database.write() as session:
        row = session.get(TokenRow, name)
        if row is None:
            raise NotFound(f"there is no token {name!r}; `paceline token list` shows all of them")
        session.delete(row)


def all_tokens(database: Database) -> Sequence[TokenRow]:
    with database.read() as session:
        return session.scalars(select(TokenRow).order_by(TokenRow.name)).all()


def any_token(database: Database) -> bool:
    with database.read() as session:
        return bool(session.scalar(select(func.count()).select_from(TokenRow)))


def role_of(database: Database, token: str) -> Role | None:
    with database.read() as session:
        role = session.scalar(select(TokenRow.role).where(TokenRow.digest == _digest(token)))
    return Role(role) if role else None


def _digest(token: str) -> str:
    """Plain SHA-256, without salt, is enough because tokens are random: there are no likely values to try."""
    return hashlib.sha256(token.encode()).hexdigest()
