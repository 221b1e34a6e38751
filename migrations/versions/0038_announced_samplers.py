"""announced samplers

The sampler that the newest `experiment.search_chosen` event names. To find that event, the whole log may have to be
read. Experiments of earlier versions have none until their next trial is created.
"""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("experiments", sa.Column("announced_sampler", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("experiments", "announced_sampler")
