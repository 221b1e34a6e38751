"""What several trials of one package leave in a process: its modules."""

import logging
import sys
import tempfile
from pathlib import Path

import pytest

from tests.trainer.worker.package_trials import Trials

pytestmark = pytest.mark.slow


def test_a_module_that_is_imported_through_the_working_directory_is_imported_again(trials: Trials) -> None:
    train = """
        import os, sys

        def train_fn():
            sys.path.insert(0, os.getcwd())
            import helper_of_test
            helper_of_test.STEPS.append(1)
            return len(helper_of_test.STEPS), os.path.exists(helper_of_test.__file__)
        """
    trials.write(helper_of_test="STEPS = []", trained=train)
    assert [trials.run() for _ in range(3)] == [((1, True), None)] * 3


def test_a_package_behind_a_link_is_imported_again(trials: Trials, tmp_path: Path) -> None:
    train = """
        import pathlib, sys

        def train_fn():
            sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
            import helper_of_test
            helper_of_test.STEPS.append(1)
            return len(helper_of_test.STEPS)
        """
    trials.write(helper_of_test="STEPS = []", trained=train)
    (tmp_path / "link").symlink_to(trials.package)
    trials.package = tmp_path / "link"
    assert [trials.run()[0] for _ in range(2)] == [1, 1]


@pytest.mark.parametrize("folder", ["tempfile.gettempdir()", "None"])
def test_a_module_that_is_loaded_from_a_file_elsewhere_is_loaded_again(trials: Trials, folder: str) -> None:
    """The file is temporary, or in another folder and gone."""
    train = f"""
        import importlib.util, os, sys, tempfile

        def train_fn():
            folder = {folder} or {str(trials.root)!r}
            path = os.path.join(folder, "settings_of_test.py")
            with open(path, "w") as file:
                file.write("STEPS = []")
            if "settings_of_test" not in sys.modules:
                spec = importlib.util.spec_from_file_location("settings_of_test", path)
                sys.modules["settings_of_test"] = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(sys.modules["settings_of_test"])
            os.remove(path)
            steps = sys.modules["settings_of_test"].STEPS
            steps.append(1)
            return len(steps)
        """
    trials.write(trained=train)
    assert [trials.run() for _ in range(2)] == [(1, None)] * 2


def test_a_module_without_a_file_goes_with_its_trial_unless_a_library_has_made_it(trials: Trials) -> None:
    train = """
        import sys, types

        def train_fn():
            names = "made_of_test", "made_of_test.part", "cython_runtime", "_cython_of_test", "torch.made_of_test"
            found = [name for name in names if name in sys.modules]
            for name in names:
                sys.modules.setdefault(name, types.ModuleType(name))
            return found
        """
    trials.write(trained=train)
    before = set(sys.modules)
    trials.run()
    assert trials.run() == (sorted({"cython_runtime", "_cython_of_test", "torch.made_of_test"}, key=len), None)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_module_with_the_name_of_a_loaded_one_wins_and_begins_each_trial_anew(trials: Trials) -> None:
    import queue  # noqa: PLC0415 - the loaded one
    import statistics  # noqa: PLC0415

    trials.write(
        statistics="SEEN = []",
        queue="import statistics\ndef count():\n    statistics.SEEN.append(1)\n    return len(statistics.SEEN)",
        trained="import queue\ndef train_fn(): return queue.count()",
    )
    assert [trials.run() for _ in range(3)] == [(1, None)] * 3
    assert (sys.modules["queue"], sys.modules["statistics"]) == (queue, statistics)


def test_a_module_that_the_process_needs_is_not_replaced_and_the_log_says_so(
    trials: Trials, caplog: pytest.LogCaptureFixture
) -> None:
    trials.write(logging="", trained="import logging\ndef train_fn(): return hasattr(logging, 'getLogger')")
    assert trials.run() == (True, None)
    assert "the package has a module 'logging'" in caplog.text
    assert sys.modules["logging"] is logging


def test_a_library_that_has_imported_the_packages_module_in_place_of_another_ends_with_the_process(
    trials: Trials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))  # or else the library would be a temporary module
    (tmp_path / "tmp").mkdir()
    (tmp_path / "site/library_of_test.py").write_text("import statistics")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    trials.write(statistics="", trained="import library_of_test\ndef train_fn(): pass")
    _, reason = trials.run()
    sys.modules.pop("library_of_test", None)
    assert reason == "library_of_test uses the package's module 'statistics' in place of another one"


@pytest.mark.parametrize("value", ["None", "Mock()", "ModuleType('csv')"])
def test_a_module_that_a_trial_has_replaced_by_something_else_is_back(trials: Trials, value: str) -> None:
    import csv  # noqa: PLC0415 - loaded before

    imports = "import sys\nfrom types import ModuleType\nfrom unittest.mock import Mock\n"
    trials.write(trained=f"{imports}def train_fn(): sys.modules['csv'] = {value}")
    assert trials.run() == (None, None)
    assert sys.modules["csv"] is csv
