"""What the output of a crashed process says about whose code crashed it."""

from pathlib import Path

import pytest

from trainer.worker.process_end import crash_signal
from trainer.worker.process_end.crash_signal import UserCrash, find_user_crash

PID = 3428
RECEIVED = (
    "*** SIGSEGV received at time=1795848720 on cpu 0 ***\n"
    f"[2026-11-28 06:52:00,397 E {PID} 3601] logging.cc:474: *** SIGSEGV received at time=1795848720 on cpu 0 ***\n"
    "Fatal Python error: Segmentation fault\n\n"
)
NO_STACK = RECEIVED.partition("Fatal")[0]
STACK = "Stack (most recent call first):\n"
STRING_AT = '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
TRAIN = '  File "/tmp/packages/ab12/train.py", line 6 in train\n'
RAY = '  File "/srv/venv/lib/python3.11/site-packages/ray/data/iterator.py", line 487 in __next__\n'
OURS = f'  File "{Path(crash_signal.__file__).parents[1] / "rank_session.py"}", line 151 in run\n'
THREAD = '  File "/usr/lib/python3.11/threading.py", line 982 in run\n'
MODULES = "\nExtension modules: msgpack._cmsgpack, google._upb._message (total: 2)\n"


def find(output: str, tmp_path: Path, position: int = 0) -> UserCrash | None:
    log = tmp_path / f"worker-633c1d288799376b-01000000-{PID}.err"
    log.write_text(output)
    return find_user_crash({str(log): position})


@pytest.mark.parametrize("called_by", [OURS + THREAD, "  ...\n"], ids=["Paceline", "deep recursion"])
def test_a_crash_below_the_users_code_is_found_with_its_stack(called_by: str, tmp_path: Path) -> None:
    crash = find(RECEIVED + STACK + STRING_AT + TRAIN + called_by + MODULES, tmp_path)
    assert crash == UserCrash("SIGSEGV", "train.py:6", STACK + STRING_AT + TRAIN)
    message = "the worker process of rank 3 crashed with SIGSEGV (train.py:6), in native code, such as a C extension"
    assert crash.describe("the worker process of rank 3")[0] == message


def test_a_crash_without_a_word_of_the_faulthandler_is_of_code_that_has_changed_it(tmp_path: Path) -> None:
    crash = find(NO_STACK, tmp_path)
    assert crash == UserCrash("SIGSEGV", "", "")
    assert "crashed with SIGSEGV; where is not known" in crash.describe("the worker process of rank 3")[0]


def all_threads(other: str, crashed: str) -> str:
    """As `faulthandler` prints them, if the user's code has enabled it by itself."""
    first = "Thread 0x00007f80 (most recent call first):\n" + other + OURS + "\n"
    return RECEIVED + first + "Current thread 0x00007f81 (most recent call first):\n" + crashed + OURS + MODULES


def test_of_all_threads_the_one_that_crashed_counts(tmp_path: Path) -> None:
    assert find(all_threads(TRAIN, RAY + TRAIN), tmp_path) is None
    crash = find(all_threads(RAY, STRING_AT + TRAIN), tmp_path)
    assert crash == UserCrash("SIGSEGV", "train.py:6", STACK + STRING_AT + TRAIN)


@pytest.mark.parametrize(
    "output",
    [
        "",
        RECEIVED,
        NO_STACK.replace("SIGSEGV", "SIGABRT"),
        NO_STACK.replace("SIGSEGV", "SIGBUS"),
        RECEIVED + "<no Python frame>\n",
        RECEIVED + STACK + RAY + TRAIN + OURS + MODULES,
        RECEIVED + STACK + OURS + THREAD + MODULES,
        RECEIVED + STACK + RAY + THREAD + MODULES,
        RECEIVED.replace(str(PID), "3999") + STACK + TRAIN + OURS + MODULES,
        "SIGSEGV received\n" + STACK + TRAIN + OURS,
        RECEIVED.replace("SIGSEGV", "SIGTERM") + STACK + TRAIN + OURS + MODULES,
        RECEIVED.replace("SIGSEGV", "SIGBUS") + STACK + TRAIN + OURS + MODULES,
    ],
    ids=[
        "none",
        "cut",
        "abort",
        "bus",
        "C++ thread",
        "in Ray",
        "in Paceline",
        "main thread",
        "child",
        "printed",
        "SIGTERM",
        "SIGBUS",
    ],
)
def test_any_other_end_stays_a_loss(output: str, tmp_path: Path) -> None:
    assert find(output, tmp_path) is None


def test_the_output_of_an_earlier_trial_in_the_same_file_does_not_count(tmp_path: Path) -> None:
    earlier = RECEIVED + STACK + TRAIN + OURS + MODULES
    assert find(earlier + "killed\n", tmp_path, len(earlier)) is None
