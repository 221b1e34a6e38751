"""Many runs, one after the other."""

from pathlib import Path
from typing import Any

import pytest

from tests.chaos import __main__ as command
from tests.chaos.campaign import Result, table
from tests.chaos.chaos import Plan
from tests.chaos.evidence.snapshot import Snapshot
from tests.chaos.good_run import good_run


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """The seeds and databases of the runs. Each is a good one with one fault, but for the seed 99."""
    begun: list[tuple[int, str]] = []

    def chaos(plan: Plan, _say: Any, _keep: Path | None) -> Snapshot:
        begun.append((plan.seed, plan.size.database))
        if plan.seed == 99:
            raise TimeoutError("no service is ready")
        return good_run()

    monkeypatch.setattr(command, "chaos", chaos)
    return begun


def test_a_seed_runs_on_both_databases(runs: list[tuple[int, str]]) -> None:
    assert command.main(["--seed", "5"]) == 0
    assert runs == [(5, "postgresql"), (5, "sqlite")]


def test_seeds_follow_each_other_until_there_have_been_enough_faults(
    runs: list[tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--seed", "5", "--faults", "3"]) == 0
    assert runs == [(5, "postgresql"), (5, "sqlite"), (6, "postgresql")]
    assert capsys.readouterr().out.splitlines()[-1].split() == ["all", "3", "9", "48", "0"]


def test_a_run_that_is_not_completed_fails_and_ends_the_campaign(
    runs: list[tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--seed", "98", "--faults", "9", "--database", "sqlite"]) == 1
    assert [seed for seed, _ in runs] == [98, 99]
    assert "The run was not completed: no service is ready" in capsys.readouterr().out


def test_violations_are_counted() -> None:
    results = [Result(1, "sqlite", ["a trial is lost"], 20), Result(2, "sqlite", ["a", "b"], 9, 3, 4)]
    assert table(results).splitlines()[-1].split() == ["all", "29", "3", "4", "3"]
