"""Early-stopping decisions as the API shows them."""

from datetime import datetime

from service.api.views.rows import RowView
from service.domain.grounds import Grounds


class DecisionView(Grounds, RowView):
    """The answer to a report, or the decision on a paused trial."""

    decision: str
    rule: str
    metric: str
    step: int
    attempt: int
    at: datetime
