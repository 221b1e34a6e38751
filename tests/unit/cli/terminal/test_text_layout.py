"""Tables and facts: nothing that is to be copied is cut or broken, and no width is wasted."""

from datetime import UTC, datetime

import pytest
from rich.console import RenderableType
from rich.markup import escape

from service.cli.terminal import console, terminal_tables
from service.cli.terminal.text_layout import facts, table

NOW = datetime(2026, 1, 1, 12, 2, tzinfo=UTC)
URI = "s3://bucket/" + "a-long-prefix/" * 10 + "checkpoint_000001"
TRIAL = {"number": 0, "id": "t-1f2e3d4c5b6a", "status": "running", "values": {"loss": 0.5}, "params": {}}


def printed(
    shown: RenderableType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int = 100
) -> list[str]:
    monkeypatch.setattr(console.out, "width", width)
    console.print_result({}, shown, as_json=False)
    return capsys.readouterr().out.splitlines()


def test_an_address_is_whole_where_the_terminal_is_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {"step": 1, "attempt": 1, "at": "2026-01-01T00:00", "uri": URI}
    [_, row] = printed(terminal_tables.checkpoints([one]), capsys, monkeypatch)
    assert row == f"1     1        -      -     2026-01-01 00:00  {URI}"
    assert printed(facts([("MLflow", URI)]), capsys, monkeypatch) == [f"MLflow  {URI}"]


def test_control_characters_are_shown_whole_in_tables_and_facts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = printed(table(("name", "id"), [("a\u202eb", "1")]), capsys, monkeypatch)
    assert shown == ["name      id", r"a\u202eb  1"]
    assert printed(facts([("a\u202eb", "1"), ("c", "2")]), capsys, monkeypatch) == [r"a\u202eb  1", "c         2"]


def test_a_column_without_content_is_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    [header, _] = printed(terminal_tables.trials([TRIAL | {"params": {"lr": 0.1}}], NOW), capsys, monkeypatch)
    assert header.split() == ["trial", "id", "status", "value", "parameters"]


@pytest.mark.parametrize(
    ("changes", "time"),
    [
        ({"running_since": "2026-01-01T11:00:55Z"}, "1:01:05"),
        ({"running_since": "2026-01-01T12:02:01Z"}, "0:00"),
        ({"running_since": "2026-01-01T12:01:50Z", "cost": {"training_seconds": 61}}, "1:11"),
        ({"status": "pruned", "cost": {"waiting_seconds": 900, "starting_seconds": 2, "training_seconds": 61}}, "1:03"),
    ],
)
def test_a_trial_says_for_how_long_it_runs_or_what_its_attempts_took(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], time: str
) -> None:
    [header, row] = printed(terminal_tables.trials([TRIAL | changes], NOW), capsys, monkeypatch)
    assert header.split()[3] == "time"
    assert row.split()[3] == time


def test_what_rich_takes_for_an_emoji_stays_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "y = batch[:m:2]"
    shown = printed(facts([("traceback", escape(line))]), capsys, monkeypatch)
    shown += printed(table(("trial", "reason"), [("0", escape(line))]), capsys, monkeypatch)
    assert shown == [f"traceback  {line}", "trial  reason", f"0      {line}"]


def test_texts_are_wrapped_and_never_hidden(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {f"a_long_parameter_{number}": number for number in range(20)}
    one = TRIAL | {"params": params, "reason": "words of " * 20}
    lines = printed(terminal_tables.trials([one], NOW), capsys, monkeypatch, width=80)
    assert max(map(len, lines)) <= 80
    assert all(f"{name}={value}" in "\n".join(lines) for name, value in params.items())
    assert "t-1f2e3d4c5b6a" in lines[1]


def test_a_table_in_a_pipe_has_one_line_for_each_row_without_padding(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("0", "x" * 300), ("1", "y")]
    lines = printed(table(("trial", "reason"), rows), capsys, monkeypatch, console.PIPED_WIDTH)
    assert lines == ["trial  reason", f"0      {'x' * 300}", "1      y"]


def test_a_long_name_takes_no_more_room_than_it_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a-long-name-" * 10
    [header, row] = printed(table(("experiment", "best"), [(name, "loss 0.5")]), capsys, monkeypatch)
    assert row.startswith(f"{name}  ")
    [header, row] = printed(table(("experiment", "best"), [("short", "loss 0.5")]), capsys, monkeypatch)
    assert (header, row) == ("experiment  best", "short       loss 0.5")
