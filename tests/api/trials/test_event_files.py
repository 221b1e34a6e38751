"""TensorBoard's event files as a tar archive: those of a trial and of an experiment."""

from pathlib import Path

from tests.api.trials.archive_contents import contents
from tests.conftest import Api, Held


def written(held: Held, content: str) -> str:
    """As a slot keeps them at the end of an attempt. Return the name of the attempt's directory."""
    directory = Path(held.assignment["event_files"])
    (directory / "runs").mkdir(parents=True)
    (directory / "runs" / "events.out.tfevents.1").write_text(content)
    return directory.name


def files(service: Api, path: str) -> dict[str, bytes]:
    tar = service.http.get(f"{path}/tensorboard/archive").raise_for_status().content
    return {name: content for name, content in contents(tar).items() if content is not None}


def test_each_trial_has_its_own_and_the_experiment_all_of_them(service: Api) -> None:
    name = service.create()["name"]
    first, second = service.ask(name), service.ask(name)
    assert first
    assert second
    kept = [written(first, "a"), written(second, "b")]
    assert kept == ["trial-0-attempt-1", "trial-1-attempt-1"]
    event_file = "runs/events.out.tfevents.1"
    assert files(service, f"/v1/trials/{first.trial}") == {f"trial-0-tensorboard/{kept[0]}/{event_file}": b"a"}
    assert files(service, f"/v1/trials/{second.trial}") == {f"trial-1-tensorboard/{kept[1]}/{event_file}": b"b"}
    assert files(service, f"/v1/experiments/{name}") == {
        f"{name}-tensorboard/{kept[0]}/{event_file}": b"a",
        f"{name}-tensorboard/{kept[1]}/{event_file}": b"b",
    }


def test_without_event_files_the_answer_says_which_are_kept(service: Api) -> None:
    name = service.create()["name"]
    first, second = service.ask(name), service.ask(name)
    assert first
    assert second
    hint = "below their working directory are kept"
    assert hint in service.get(f"/v1/experiments/{name}/tensorboard/archive", 404)["detail"]
    written(first, "a")
    assert hint in service.get(f"/v1/trials/{second.trial}/tensorboard/archive", 404)["detail"]
