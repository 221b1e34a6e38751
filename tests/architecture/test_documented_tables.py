"""Tables in the documents have the numbers and names of the code."""

import pytest

from service.domain.repeated_failure import FAILURES_TO_GIVE_UP
from tests.architecture.documented_tables import code_in, rows_under

pytestmark = pytest.mark.slow


def test_the_documented_failures_that_end_an_experiment_are_those_of_the_code() -> None:
    rows = rows_under("concepts/experiments-and-trials.md", "#### When the first failures are alike")
    documented = {code_in(row["`failure_kind`"])[0]: int(row["trials"]) for row in rows}
    assert documented == FAILURES_TO_GIVE_UP
