"""indexes of foreign keys

Without them the deletion of an experiment read all milestones of all experiments for each of its trials.
"""

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

INDEXES = {
    "ix_milestones_trial_id": ("milestones", "trial_id"),
    "ix_mirror_runs_experiment_id": ("mirror_runs", "experiment_id"),
}


def upgrade() -> None:
    for name, (table, column) in INDEXES.items():
        op.create_index(name, table, [column])


def downgrade() -> None:
    for name, (table, _) in INDEXES.items():
        op.drop_index(name, table)
