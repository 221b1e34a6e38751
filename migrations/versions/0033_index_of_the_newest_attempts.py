"""index of the newest attempts

Without it each claim among several experiments read all of their attempts, to know which one was served last. It
takes the place of the index by experiment alone, with which it begins, and which is dropped last: PostgreSQL locks the
table against readers from then to the commit.
"""

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(op.f("ix_attempts_experiment_id_id"), "attempts", ["experiment_id", "id"], unique=False)
    op.drop_index(op.f("ix_attempts_experiment_id"), table_name="attempts")


def downgrade() -> None:
    op.create_index(op.f("ix_attempts_experiment_id"), "attempts", ["experiment_id"], unique=False)
    op.drop_index(op.f("ix_attempts_experiment_id_id"), table_name="attempts")
