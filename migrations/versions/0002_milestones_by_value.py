"""milestones by value: a trial's place among thousands without reading them"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

INDEX = "ix_milestones_experiment_id_milestone_value_trial_id"


def upgrade() -> None:
    op.create_index(INDEX, "milestones", ["experiment_id", "milestone", "value", "trial_id"])


def downgrade() -> None:
    op.drop_index(INDEX, "milestones")
