"""What a runtime environment requires and excludes."""

from typing import Any

import pytest

from service.errors import Invalid
from service.specification.cross_field_checks.runtime_env_checks import mistakes_in_requirements, package_warnings
from service.specification.parser import parse_spec
from tests.conftest import a_spec
from trainer.wire import Trainer

PACKAGE = f"sha256:{'0' * 64}"
OF_OLDER_PIP = ["a>=1.0.*", "pytz==2004d", "a>=1.0+cu118"]


def trainer(runtime_env: Any, **fields: Any) -> dict[str, Any]:
    return {"entrypoint": "train:train", "runtime_env": runtime_env, **fields}


def mistakes(runtime_env: Any, **fields: Any) -> dict[str, str]:
    try:
        parse_spec(a_spec(trainer=trainer(runtime_env, **fields)))
    except Invalid as invalid:
        return {".".join(map(str, one.path)): one.message for one in invalid.mistakes}
    return {}


@pytest.mark.parametrize(
    "runtime_env",
    [
        {
            "pip": [
                "lightning==2.6",
                "torch>=2",
                "https://host/a-1.0-py3-none-any.whl",
                "/wheels/a-1.0-py3-none-any.whl",
            ]
        },
        {"pip": {"packages": ["emoji"], "pip_check": True, "pip_install_options": ["--no-index"]}},
        {"pip": {"packages": OF_OLDER_PIP, "pip_version": "<24.1"}},
        {"pip": "from_package"},
        {"uv": {"packages": ["emoji"], "from_package": True, "uv_version": "==0.9.0"}},
        {"conda": "train"},
        {"conda": {"dependencies": ["pytorch", {"pip": ["emoji"]}]}},
        {"env_vars": {"A": "b"}, "config": {"setup_timeout_seconds": 1800}},
        {"pip": ["rayleigh", "xgboost-ray", "emoji  # as in docs/dependencies.md"]},
        {"pip": ["emoji[all]>=1,<2 ; python_version<'4'", "a @ https://host/a.zip", "a@git+https://${TOKEN}@host/a"]},
        {"uv": ["git+https://host/a@v1#egg=a", "/wheels/a-1.0.tar.gz", "emoji==${VERSION}", "emoji==1.*  --no-deps"]},
    ],
)
def test_environments_that_are_right(runtime_env: Any) -> None:
    assert mistakes(runtime_env, package=PACKAGE) == {}


@pytest.mark.parametrize(
    ("runtime_env", "fields", "path", "says"),
    [
        ({"pip": ["a"], "conda": "b"}, {}, "trainer.runtime_env", "has pip and conda; Ray takes one of them"),
        ({"pip": []}, {}, "trainer.runtime_env.pip", "installs nothing"),
        ({"pip": "requirements.txt"}, {}, "trainer.runtime_env.pip", "must be an object"),
        ({"pip": ["a", 3]}, {}, "trainer.runtime_env.pip.packages.1", "must be text"),
        ({"pip": {"package": ["a"]}}, {}, "trainer.runtime_env.pip.package", "did you mean packages?"),
        ({"pip": ["ray==2.9"]}, {}, "trainer.runtime_env.pip.packages.0", "must be the cluster's"),
        ({"uv": ["Ray[train]"]}, {}, "trainer.runtime_env.uv.packages.0", "must be the cluster's"),
        ({"pip": ["-r other.txt"]}, {}, "trainer.runtime_env.pip.packages.0", "is a file, which is not there"),
        ({"pip": ["a", "b\n-e ."]}, {}, "trainer.runtime_env.pip.packages.1", "is a file, which is not there"),
        ({"pip": ["--find-links wheels/"]}, {}, "trainer.runtime_env.pip.packages.0", "is a file, which is not there"),
        ({"pip": ["./wheels/a.whl"]}, {}, "trainer.runtime_env.pip.packages.0", "is a file, which is not there"),
        (
            {"pip": ["a", "cowsay=5.0"]},
            {},
            "trainer.runtime_env.pip.packages.1",
            "is no requirement; write cowsay==5.0",
        ),
        ({"uv": ["cowsay 5.0"]}, {}, "trainer.runtime_env.uv.packages.0", "is no requirement; write cowsay==5.0"),
        (
            {"pip": ["a ; " + "(" * 1990]},
            {},
            "trainer.runtime_env.pip.packages.0",
            "is no requirement; write it as in emoji==2.0",
        ),
        ({"pip": ["."]}, {}, "trainer.runtime_env.pip.packages.0", "is no requirement; write it as in emoji==2.0"),
        ({"pip": "from_package"}, {}, "trainer.runtime_env.pip", "there is no package: send the code"),
        ({"working_dir": "."}, {}, "trainer.runtime_env.working_dir", "the package is the workers' working directory"),
        ({"py_modules": ["a"]}, {}, "trainer.runtime_env.py_modules", "send the modules as code"),
        ({"image_uri": "a"}, {}, "trainer.runtime_env.image_uri", "start the cluster's nodes from the image"),
        ({"pipp": ["a"]}, {}, "trainer.runtime_env.pipp", "did you mean pip?"),
        ({"env_vars": {"A": "1"}}, {"env": {"A": "2"}}, "trainer.runtime_env.env_vars.A", "is also in trainer.env"),
        ({"config": {"setup_timeout_seconds": "5"}}, {}, "trainer.runtime_env.config.setup_timeout_seconds", "write 5"),
        ({"pip": ["a"]}, {"kind": "external"}, "trainer.runtime_env", "kind external has no agent"),
    ],
)
def test_each_mistake_has_its_path_and_what_would_be_right(
    runtime_env: Any, fields: dict[str, Any], path: str, says: str
) -> None:
    found = mistakes(runtime_env, **fields)
    assert says in found.get(path, ""), found


def test_requirements_of_the_package_are_checked_with_their_lines() -> None:
    asked = Trainer.model_validate(trainer({"pip": "from_package"}, package=PACKAGE))
    (missing,) = mistakes_in_requirements(asked, ["train.py"], None)
    assert str(missing) == (
        "trainer.runtime_env.pip: is from the package's requirements.txt, which it does not have; it has: train.py"
    )
    (wrong,) = mistakes_in_requirements(asked, ["requirements.txt"], b"emoji\n-e .\n")
    assert "line 2 of requirements.txt, '-e .', is a file" in str(wrong)
    (wrong,) = mistakes_in_requirements(asked, ["requirements.txt"], b"emoji \\\n  ==2\n# a\nwheels/a.whl # b\n")
    assert "line 4 of requirements.txt, 'wheels/a.whl', is a file" in str(wrong)
    (wrong,) = mistakes_in_requirements(asked, ["requirements.txt"], b"emoji\ncowsay = 5.0 \\\n  --hash=sha256:01\n")
    assert "line 2 of requirements.txt, 'cowsay = 5.0   --hash=sha256:01', is no requirement; write cowsay==5.0" in str(
        wrong
    )
    (wrong,) = mistakes_in_requirements(asked, ["requirements.txt"], "emoji # ä".encode("latin-1"))
    assert "is not UTF-8 text" in str(wrong)


@pytest.mark.parametrize(
    "content",
    [
        b"# none\n\nemoji==2.0\n",
        b"# as in docs/dependencies.md\nemoji==2.0  # see wheels/emoji.whl\n\t# C:\\wheels\n",
        b"emoji==2.0 \\\n    --hash=sha256:0123 \\\n    --hash=sha256:4567\n",
        b"\xef\xbb\xbfemoji==2.0\r\n",
        b"--find-links /wheels\n--index-url=https://packages.example/simple\nemoji\n",
        b"emoji\\",
        b"",
    ],
)
def test_requirements_of_the_package_that_are_right(content: bytes) -> None:
    asked = Trainer.model_validate(trainer({"uv": "from_package"}, package=PACKAGE))
    assert not [*mistakes_in_requirements(asked, ["requirements.txt"], content)]


def test_requirements_of_the_package_that_only_the_wanted_pip_can_read() -> None:
    env = {"pip": {"from_package": True, "pip_version": "==24.0"}}
    asked = Trainer.model_validate(trainer(env, package=PACKAGE))
    assert not [*mistakes_in_requirements(asked, ["requirements.txt"], "\n".join(OF_OLDER_PIP).encode())]


def test_requirements_that_are_not_used_are_mentioned() -> None:
    files = ["requirements.txt", "train.py"]
    (warning,) = package_warnings(Trainer.model_validate(trainer(None)), files)
    assert "add trainer.runtime_env: {pip: from_package}" in warning.message
    assert not [*package_warnings(Trainer.model_validate(trainer({"uv": "from_package"}, package=PACKAGE)), files)]
    assert not [*package_warnings(Trainer.model_validate(trainer(None)), ["train.py"])]
