"""What a worker process offers, for messages that another lacks the tools or the model for."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; workers of before leave it empty."""
    op.add_column("roundelay_processes", sa.Column("offers", sa.Text()))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("roundelay_processes", "offers")
