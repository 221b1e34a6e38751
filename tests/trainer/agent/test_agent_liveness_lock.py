"""How an agent is known to be dead where its process id means nothing: in another container."""

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.agent.agents_in_containers import in_a_container
from trainer.agent import liveness_lock
from trainer.agent.liveness_lock import STALE_SECONDS, LivenessLock
from trainer.agent.process_identity import instance_of, is_dead


@pytest.fixture
def newcomer(tmp_path: Path) -> LivenessLock:
    return LivenessLock(tmp_path)


def files(state: Path) -> list[Path]:
    return list((state / "agents").iterdir())


def test_the_agent_of_a_killed_container_is_known_to_be_dead_and_a_living_one_is_not(
    tmp_path: Path, newcomer: LivenessLock
) -> None:
    with in_a_container(tmp_path) as (agent, kill):
        assert agent["pid"] == 1
        assert not is_dead(agent)
        assert not newcomer.is_known_dead(agent)
        kill()
        assert not is_dead(agent), "its process id means nothing here"
        assert newcomer.is_known_dead(agent)
        assert not newcomer.is_known_dead({**agent, "started": agent["started"] + 1}), "another of its kind"
        newcomer.remove_dead(agent)
        assert not newcomer.is_known_dead(agent)


def test_an_agent_without_a_lock_file_may_be_alive(newcomer: LivenessLock) -> None:
    assert not newcomer.is_known_dead(instance_of(os.getpid()))
    assert not LivenessLock(None).is_known_dead(instance_of(os.getpid()))


def test_on_a_shared_disk_no_agent_is_known_to_be_dead(
    tmp_path: Path, newcomer: LivenessLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_a_container(tmp_path) as (agent, kill):
        kill()
        monkeypatch.setattr(liveness_lock, "LOCAL_FILE_SYSTEMS", frozenset({"nfs-lookalike"}))
        assert not newcomer.is_known_dead(agent)
        newcomer.acquire(instance_of(os.getpid()))
        assert len(files(tmp_path)) == 1, "and no agent leaves a lock file, which others might trust"


def test_where_files_cannot_be_locked_no_lock_file_is_left(
    tmp_path: Path, newcomer: LivenessLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_arguments: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    newcomer.acquire(instance_of(os.getpid()))
    assert files(tmp_path) == []


def test_an_agent_that_cannot_write_its_state_works_without(tmp_path: Path) -> None:
    (tmp_path / "agents").write_text("a file, where a folder should be")
    LivenessLock(tmp_path).acquire(instance_of(os.getpid()))


def test_agents_share_a_directory_and_remove_old_lock_files_of_dead_agents(
    tmp_path: Path, newcomer: LivenessLock
) -> None:
    with in_a_container(tmp_path) as (old, kill), in_a_container(tmp_path) as (another, _):
        for path in files(tmp_path):
            os.utime(path, (0, path.stat().st_mtime - STALE_SECONDS - 1))
        kill()
        newcomer.acquire(mine := instance_of(os.getpid()))
        assert len(files(tmp_path)) == 2
        assert not newcomer.is_known_dead(another)
        assert not newcomer.is_known_dead(mine)
        assert not newcomer.is_known_dead(old)
        newcomer.release()
        assert len(files(tmp_path)) == 1


def test_a_copied_lock_file_does_not_make_a_living_agent_dead(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    living = LivenessLock(original)
    living.acquire(mine := instance_of(os.getpid()))
    shutil.copytree(original, copy)
    assert not LivenessLock(copy).is_known_dead(mine)
    living.release()


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        (["/ ext4"], True),
        (["/ ext4", "/data nfs4"], False),
        (["/ ext4", "/dat nfs4"], True),
        (["/ ext4", "/data nfs4", "/data/agents ext4"], True),
        (["/ overlay", "/data ext4", "/data fuse.sshfs"], False),
        (["/ ext4", r"/data\040agents nfs"], True),
        ([], False),
    ],
)
def test_the_file_system_is_that_of_the_innermost_mount(
    mounts: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = [line.split() for line in mounts]
    lines = [f"36 35 98:0 / {point} rw,noatime master:1 - {kind} /dev/root rw" for point, kind in table]
    monkeypatch.setattr(Path, "read_text", lambda _path: "\n".join(lines))
    assert liveness_lock.is_local(Path("/data/agents")) is expected
