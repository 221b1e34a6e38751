"""The part of `trainer.wire` that says what is installed for a trial: Ray's runtime environment."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue

from trainer.wire.field_types import Bool, EnvironmentName, JsonNumber, Key, Message, Text, in_words

FROM_PACKAGE = "from_package"

Requirement = Annotated[Text, Field(min_length=1, max_length=2_000)]
Requirements = Annotated[list[Requirement], Field(max_length=1_000)]
Options = Annotated[list[Text], Field(max_length=100)]


def _as_installer(given: Any) -> Any:
    """Ray also takes a list of packages."""
    if isinstance(given, list):
        return {"packages": given}
    return {FROM_PACKAGE: True} if given == FROM_PACKAGE else given


class Installer(Message):
    """What pip and uv have in common."""

    packages: Requirements = Field(default_factory=list)
    """requirements, as in a `requirements.txt`"""
    from_package: Bool = False
    """also those of the package's `requirements.txt`"""


class Pip(Installer):
    """What pip installs, in Ray's names."""

    pip_check: Bool = False
    """fail if the packages do not fit together"""
    pip_version: Text | None = None
    """the version of pip itself, such as `==26.0`"""
    pip_install_options: Options | None = None
    """the options of `pip install`"""


class Uv(Installer):
    """What uv installs, in Ray's names."""

    uv_check: Bool = False
    """fail if the packages do not fit together"""
    uv_version: Text | None = None
    """the version of uv itself, such as `==0.9.0`"""
    uv_pip_install_options: Options | None = None
    """the options of `uv pip install`"""


class RuntimeEnvConfig(Message):
    """How Ray sets the environment up."""

    setup_timeout_seconds: Annotated[int, Field(ge=-1, le=86_400), JsonNumber] = 600
    """how long that may take; -1: without a limit"""
    eager_install: Bool = True
    """install as soon as the cluster is joined"""


class RuntimeEnv(Message):
    """What is installed for the workers before they start: Ray's runtime environment, in Ray's names."""

    pip: (
        Annotated[
            Pip,
            BeforeValidator(_as_installer, json_schema_input_type=Pip | Requirements | Literal["from_package"]),
        ]
        | None
    ) = None
    """what pip installs: a list of requirements, `from_package` for the package's `requirements.txt`, or an object"""
    uv: (
        Annotated[
            Uv,
            BeforeValidator(_as_installer, json_schema_input_type=Uv | Requirements | Literal["from_package"]),
        ]
        | None
    ) = None
    """what uv installs: a list of requirements, `from_package` for the package's `requirements.txt`, or an object"""
    conda: (
        Annotated[
            Text | dict[Key, JsonValue],
            in_words("must be the name of a conda environment, or the content of an environment.yml"),
        ]
        | None
    ) = None
    """the name of a conda environment on the nodes, or the content of an `environment.yml`"""
    env_vars: dict[EnvironmentName, Text] = Field(default_factory=dict)
    """environment variables, also while packages are installed; they are stored and shown"""
    config: RuntimeEnvConfig | None = None
    """how Ray sets the environment up"""
