"""Many runs, one after the other."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import __main__ as command
from tests.chaos.audit import audit
from tests.chaos.campaign import Result, read_results, summary
from tests.chaos.chaos import Plan
from tests.chaos.evidence.snapshot import Snapshot
from tests.chaos.faults.schedule import Target
from tests.chaos.good_run import good_run
from tests.chaos.system.components import Program


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """The seeds and databases of the runs. Each is a good one with one fault, but for the seed 99."""
    begun: list[tuple[int, str]] = []

    def chaos(plan: Plan, _say: Any, _keep: Path | None) -> Snapshot:
        begun.append((plan.seed, "up" if plan.size.up else plan.size.database))
        if plan.seed == 99:
            raise TimeoutError("no service is ready")
        return _with_component(good_run())

    monkeypatch.setattr(command, "chaos", chaos)
    return begun


def _with_component(run: Snapshot) -> Snapshot:
    """As in a live run, the fault names what is to be started again."""
    component = Program("mlflow", Target.MLFLOW, [], {}, Path("log"), lambda: True)
    faults = [replace(run.record.faults[0], component=component)]
    return replace(run, record=replace(run.record, faults=faults))


def test_a_seed_runs_on_both_databases(runs: list[tuple[int, str]]) -> None:
    assert command.main(["--seed", "5"]) == 0
    assert runs == [(5, "postgresql"), (5, "sqlite")]


def test_paceline_up_takes_the_place_of_a_database(runs: list[tuple[int, str]]) -> None:
    assert command.main(["--seed", "5", "--up"]) == 0
    assert runs == [(5, "up")]


def test_seeds_follow_each_other_until_there_have_been_enough_faults(
    runs: list[tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--seed", "5", "--faults", "3"]) == 0
    assert runs == [(5, "postgresql"), (5, "sqlite"), (6, "postgresql")]
    assert _totals(capsys.readouterr().out) == ["3", "9", "48", "0"]


def test_a_run_that_is_not_completed_fails_and_ends_the_campaign(
    runs: list[tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--seed", "98", "--faults", "9", "--database", "sqlite"]) == 1
    assert [seed for seed, _ in runs] == [98, 99]
    assert "The run was not completed: no service is ready" in capsys.readouterr().out


def test_a_campaign_can_be_run_in_parts(
    runs: list[tuple[int, str]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for seed in ("5", "6"):
        command.main(["--seed", seed, "--faults", "1", "--database", "sqlite", "--results", str(tmp_path / "parts")])
    assert runs == [(5, "sqlite"), (6, "sqlite")]
    assert _totals(capsys.readouterr().out) == ["2", "6", "32", "0"]
    assert [one.seed for one in read_results(tmp_path / "parts")] == [5, 6]


def test_the_evidence_of_a_run_can_be_audited_again(runs: list[tuple[int, str]], tmp_path: Path) -> None:
    (tmp_path / "sqlite-5").mkdir()
    command.main(["--seed", "5", "--database", "sqlite", "--keep", str(tmp_path)])
    kept = pickle.loads((tmp_path / "sqlite-5" / "snapshot.pickle").read_bytes())  # noqa: S301 - the run's own file
    assert audit(kept) == []


def test_only_runs_with_violations_of_a_campaign_are_kept(
    runs: list[tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, found in (("5", []), ("6", ["a trial is lost"])):
        monkeypatch.setattr(command, "audit", lambda _, found=found: found)
        (tmp_path / f"sqlite-{seed}").mkdir()
        command.main(["--seed", seed, "--database", "sqlite", "--faults", "1", "--keep", str(tmp_path)])
    assert [one.name for one in tmp_path.iterdir()] == ["sqlite-6"]


def test_violations_are_counted() -> None:
    results = [
        Result(1, "sqlite", ["a trial is lost"], {"slot": 20}),
        Result(2, "sqlite", ["a", "b"], {"ray": 9}, 3, 4),
    ]
    assert _totals(summary(results)) == ["29", "3", "4", "3"]


def test_the_summary_is_of_all_runs() -> None:
    first = Result(1, "sqlite", [], {"slot": 2}, recoveries={"slot: until x": [1, 2]}, unchecked=["3 lost attempts"])
    other = Result(2, "sqlite", [], {"slot": 1}, recoveries={"slot: until x": [9]}, unchecked=["4 lost attempts"])
    lines = [line.split() for line in summary([first, other]).splitlines()]
    assert ["slot", "3"] in lines
    assert ["slot:", "until", "x", "3", "2.00", "9.00"] in lines
    assert ["2", "runs:", "7", "lost", "attempts"] in lines


def _totals(said: str) -> list[str]:
    return next(line.split()[1:] for line in reversed(said.splitlines()) if line.split()[:1] == ["all"])
