"""The part of `trainer.wire` that says which datasets of Ray Data a trial reads, and how."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from trainer.wire.field_types import Amount, Bool, Key, LabelSelector, Message, Text, in_words

NO_ENTRYPOINT = "must be module:function, as in train:train_fn"
Entrypoint = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"), in_words(NO_ENTRYPOINT)]


class DatasetFormat(StrEnum):
    """A reader of Ray Data that takes paths: `parquet` is `ray.data.read_parquet`."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    TEXT = "text"
    IMAGES = "images"
    NUMPY = "numpy"
    BINARY_FILES = "binary_files"
    TFRECORDS = "tfrecords"
    WEBDATASET = "webdataset"
    ORC = "orc"
    AVRO = "avro"
    AUDIO = "audio"
    VIDEOS = "videos"
    LANCE = "lance"
    DELTA = "delta"


class DatasetFiles(Message):
    """A dataset that Ray Data reads from files."""

    read: DatasetFormat
    """the reader: `parquet` is `ray.data.read_parquet`"""
    paths: list[Text] = Field(min_length=1, max_length=10_000)
    """files and folders that all nodes can read, local or in a bucket; a relative path is in the package"""
    options: dict[Key, JsonValue] = Field(default_factory=dict)
    """the reader's other arguments, such as `{columns: [x, y]}` of `read_parquet`"""
    split: Bool = True
    """true: each worker gets an equal share; false: each worker reads all of it"""
    materialize: Bool = False
    """read it once for the experiment and keep it in Ray's object store, for all trials of a cluster"""


class DatasetFunction(Message):
    """Datasets that a function of the package makes."""

    entrypoint: Entrypoint
    """`module:function`: it gets the config and returns a dict of datasets of Ray Data by name"""
    materialize: Bool = False
    """call it once for the experiment, with the constants only, and keep its datasets in Ray's object store, for all
    trials of a cluster"""


class UnionMember(StrEnum):
    """The members of `Datasets`. In the path of a mistake, pydantic puts them after the field."""

    FILES = "files by name"
    FUNCTION = "a function"


def _member(given: Any) -> str:
    """A dataset may be called `entrypoint`, too: its value is then an object."""
    is_function = isinstance(given, Mapping) and isinstance(given.get("entrypoint"), str)
    return UnionMember.FUNCTION if is_function or isinstance(given, DatasetFunction) else UnionMember.FILES


DatasetName = Annotated[Key, Field(min_length=1, max_length=200)]
DatasetsByName = Annotated[dict[DatasetName, DatasetFiles], Field(min_length=1, max_length=100)]
Datasets = Annotated[
    Annotated[DatasetsByName, Tag(UnionMember.FILES)] | Annotated[DatasetFunction, Tag(UnionMember.FUNCTION)],
    Discriminator(_member),
]


class ResourceLimits(Message):
    """What the tasks of one dataset may use together, as Ray Data's `ExecutionResources`."""

    CPU: Amount | None = None
    """CPUs; absent: as many as the trial's workers have, at least 2, unless preprocess_on says what tasks reserve"""
    GPU: Amount | None = None
    """GPUs, where tasks reserve them"""
    object_store_memory: Amount | None = None
    """bytes of Ray's object store"""
    memory: Amount | None = None
    """bytes of memory, where tasks reserve it"""


class DatasetExecution(Message):
    """Ray Data's `ExecutionOptions`."""

    resource_limits: ResourceLimits = ResourceLimits()
    """what the tasks of one dataset may use together"""
    preserve_order: Bool = False
    """keep the order of the rows, which may be slower"""


class PreprocessOn(Message):
    """Where Ray Data's tasks run, which read and transform the datasets."""

    resources: dict[Key, Amount] = Field(default_factory=dict)
    """what each task reserves in place of CPUs, such as `{CPU: 1}`; absent: nothing, so that the tasks also run where
    the workers of trials hold all CPUs"""
    label_selector: LabelSelector = Field(default_factory=dict)
    """the labels of the nodes, as Ray selects them"""


class DataConfig(Message):
    """How datasets get to the workers: Ray Train's `DataConfig`."""

    split: (
        Annotated[Literal["all"] | list[DatasetName], in_words("must be all, or a list of datasets' names")] | None
    ) = None
    """the datasets that are divided among the workers; absent: those with `split: true`, and all of a function"""
    enable_shard_locality: Bool = True
    """prefer blocks on the worker's own node"""
    execution: DatasetExecution = DatasetExecution()
    """Ray Data's `ExecutionOptions`"""
    preprocess_on: PreprocessOn = PreprocessOn()
    """where Ray Data's tasks run"""
