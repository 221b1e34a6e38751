"""Reports as CSV in long form, for data frames: one line for each metric of a report."""

import csv
import io
from collections.abc import Iterable

from service.api.views.trials_csv import harmless
from service.store.tables import ReportRow

HEADER = ("trial", "step", "attempt", "at", "metric", "value")


def reports_csv(reports: Iterable[tuple[int, ReportRow]], *, with_header: bool) -> str:
    """Lines for reports that come with the numbers of their trials."""
    text = io.StringIO()
    writer = csv.writer(text)
    if with_header:
        writer.writerow(HEADER)
    for number, row in reports:
        for name, value in row.metrics.items():
            writer.writerow([number, row.step, row.attempt, row.at.isoformat(), harmless(name), harmless(value)])
    return text.getvalue()
