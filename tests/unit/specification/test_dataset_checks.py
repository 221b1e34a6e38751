"""What the datasets of a specification require and exclude."""

from typing import Any

import pytest

from service.errors import Invalid
from service.specification.cross_field_checks.dataset_checks import missing_files
from service.specification.parser import parse_spec
from tests.conftest import a_spec
from trainer.wire import Trainer

PACKAGE = f"sha256:{'0' * 64}"


def mistakes(datasets: Any, data: Any = None, **trainer: Any) -> dict[str, str]:
    body = {
        "entrypoint": "train:train",
        "datasets": datasets,
        **({"data": data} if data is not None else {}),
        **trainer,
    }
    try:
        parse_spec(a_spec(trainer=body))
    except Invalid as invalid:
        return {".".join(map(str, one.path)): one.message for one in invalid.mistakes}
    return {}


def files(**more: Any) -> dict[str, Any]:
    return {"train": {"read": "csv", "paths": ["/data/train.csv"], **more}}


@pytest.mark.parametrize(
    ("datasets", "data"),
    [
        (files(), None),
        (files(options={"parse_options": {"delimiter": ";"}}, materialize=True), {"split": ["train"]}),
        (files(paths=["s3://bucket/train"]), {"split": "all", "execution": {"resource_limits": {"CPU": 4}}}),
        ({"entrypoint": "data:make"}, {"preprocess_on": {"resources": {"CPU": 1}, "label_selector": {"zone": "a"}}}),
        ({"entrypoint": {"read": "csv", "paths": ["/data"]}}, None),
    ],
)
def test_datasets_that_are_right(datasets: Any, data: Any) -> None:
    assert mistakes(datasets, data) == {}


@pytest.mark.parametrize(
    ("given", "path", "says"),
    [
        ({"datasets": files(read="cvs")}, "trainer.datasets.train.read", "'parquet', 'csv'"),
        ({"datasets": files(paths=[])}, "trainer.datasets.train.paths", "at least 1"),
        ({"datasets": files(splitt=True)}, "trainer.datasets.train.splitt", "did you mean split?"),
        ({"datasets": files(paths=["a.csv"])}, "trainer.datasets.train.paths.0", "make it absolute, or a URI"),
        (
            {"datasets": files(options={"paths": "/a"})},
            "trainer.datasets.train.options.paths",
            "must be absent",
        ),
        ({"datasets": {}}, "trainer.datasets", "at least 1"),
        ({"datasets": {"entrypoint": "data"}}, "trainer.datasets.entrypoint", "module:function"),
        ({"datasets": {"entrypoint": "data:make", "x": 1}}, "trainer.datasets.x", "known here: entrypoint, material"),
        (
            {"datasets": files(), "data": {"split": ["val"]}},
            "trainer.data.split.0",
            "no dataset 'val'; there are",
        ),
        ({"datasets": files(split=False), "data": {"split": "all"}}, "trainer.datasets.train.split", "change one of"),
        ({"datasets": files(), "data": {"split": "some"}}, "trainer.data.split", "all"),
        ({"datasets": files(), "data": {"exec": {}}}, "trainer.data.exec", "unknown field; known here: enable_shard"),
        ({"datasets": None, "data": {}}, "trainer.data", "needs trainer.datasets"),
        ({"datasets": files(), "kind": "external"}, "trainer.datasets", "kind external reads its data itself"),
    ],
)
def test_each_mistake_has_its_path_and_what_would_be_right(given: dict[str, Any], path: str, says: str) -> None:
    found = mistakes(**given)
    assert [one for one in found if says in found[one] and one.startswith(path)], found


def test_relative_paths_are_files_or_folders_of_the_package() -> None:
    paths = ["numbers.csv", "images/", "images/cats", "numbers", "/data"]
    trainer = Trainer.model_validate({"package": PACKAGE, "datasets": files(paths=paths)})
    found = [*missing_files(trainer, ["train.py", "numbers.csv", "images/cats/1.png"])]
    assert [one.path for one in found] == [("trainer", "datasets", "train", "paths", 3)]
    assert "it has: train.py, numbers.csv" in found[0].message
