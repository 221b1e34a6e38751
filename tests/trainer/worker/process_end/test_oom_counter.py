"""The kernel's count of its kills for lack of memory, in both versions of cgroups."""

from pathlib import Path

import pytest

from trainer.worker.process_end.oom_counter import COUNTER_VARIABLE, find_oom_counter, read_oom_kills

EVENTS = "low 0\nhigh 12\nmax 340\noom 2\noom_kill 3\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"


@pytest.fixture(autouse=True)
def nobody_names_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COUNTER_VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("own", "file", "content", "kills"),
    [
        ("0::/\n", "memory.events", EVENTS, 3),
        ("0::/kubepods.slice/pod1.slice/a.scope\n", "kubepods.slice/pod1.slice/a.scope/memory.events", EVENTS, 3),
        ("5:cpu,cpuacct:/x\n4:memory:/jobs/7\n0::/\n", "memory/jobs/7/memory.oom_control", CONTROL, 4),
        ("4:memory:/docker/outside\n1:name=systemd:/\n", "memory/memory.oom_control", CONTROL, 4),
    ],
)
def test_the_counter_of_the_processs_cgroup_is_found(
    tmp_path: Path, own: str, file: str, content: str, kills: int
) -> None:
    (tmp_path / "cgroup").write_text(own)
    counter = tmp_path / "fs" / file
    counter.parent.mkdir(parents=True)
    counter.write_text(content)
    found = find_oom_counter(str(tmp_path / "fs"), str(tmp_path / "cgroup"))
    assert found is not None
    assert Path(found) == counter
    assert read_oom_kills(found) == kills


@pytest.mark.parametrize("own", [None, "", "0::/\n", "4:memory:/x\n"])
def test_without_a_cgroup_there_is_no_counter(tmp_path: Path, own: str | None) -> None:
    if own is not None:
        (tmp_path / "cgroup").write_text(own)
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\n")  # before Linux 4.13
    assert find_oom_counter(str(tmp_path), str(tmp_path / "cgroup")) is None


def test_a_variable_may_name_the_counters_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").write_text(EVENTS)
    monkeypatch.setenv(COUNTER_VARIABLE, str(tmp_path / "elsewhere"))
    assert find_oom_counter(str(tmp_path), str(tmp_path / "cgroup")) == str(tmp_path / "elsewhere")
