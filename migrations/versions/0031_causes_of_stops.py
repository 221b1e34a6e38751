"""causes of stops

A trial that a user or the end of its experiment stopped while it was queued or paused had no cause, as one that ended
by itself.
"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

TRIALS = sa.table("trials", *map(sa.column, ("status", "stop_cause", "reason")))
ENDED = ("the experiment ended: %", "paused at step % when the experiment ended: %")


def upgrade() -> None:
    without_cause = sa.update(TRIALS).where(TRIALS.c.status == "stopped", TRIALS.c.stop_cause.is_(None))
    by_user = without_cause.where(TRIALS.c.reason == "a user stopped it")
    op.execute(by_user.values(stop_cause="user"))
    by_end = without_cause.where(sa.or_(*map(TRIALS.c.reason.like, ENDED)))
    op.execute(by_end.values(stop_cause="experiment_ended"))


def downgrade() -> None:
    """Earlier versions have the same causes."""
