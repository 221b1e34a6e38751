"""Whether the user's code has crashed its worker process by a signal, such as SIGSEGV.

An extension module that reads memory which is not its own, or aborts, ends the whole process. For Ray, such a process
is lost like one that was killed. Before it ends, Ray logs the signal with the process's number, and Python's
`faulthandler`, which Ray enables, prints the stack of the thread that crashed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from trainer.worker.logs.output_end import read_output_end
from trainer.worker.user_code.user_frames import trainer_folder

SIGNAL = r"^\[[^\]\n]* E {pid} \d+\] \S+ \*\*\* (SIG(?:ABRT|FPE|ILL|SEGV)) received "
"""Ray's line. It has the number of the process, because a child that crashes writes into the same output.

SIGBUS is not among them: it means that a file or the shared memory is gone or full, which may not be so elsewhere.
"""

STACK = re.compile(r"^(?:Current thread|Stack) .*most recent call first\):\n((?:  .*\n)+)", re.MULTILINE)
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)

CUT = "\n  ...\n"
"""How `faulthandler` ends a stack of more than 100 frames, such as that of an endless recursion."""

LIBRARY = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3\.\d+/|^<")
RAY = re.compile(r"/(site|dist)-packages/ray/")


ELSEWHERE = ("SIGSEGV", "SIGFPE", "SIGILL")
"""Signals by which a process counts as crashed by the user's code if its output has no stack, and no word of
`faulthandler`: that code has disabled it, or had it write to another file. Ray aborts by SIGABRT."""

FATAL = "Fatal Python error: "
"""How `faulthandler` begins. It says so also where the thread has no stack of Python's."""


@dataclass(frozen=True)
class UserCrash:
    """`location` is `file.py:line` of the innermost frame of the user's code; `stack` has the innermost frame first.

    Both are empty if the user's code has changed `faulthandler`.
    """

    signal: str
    location: str
    stack: str

    def describe(self, process: str) -> tuple[str, str]:
        """The failure in one line, which begins with `process`, and where that crashed."""
        message = f"{process} crashed with {self.signal}"
        if not self.location:
            return f"{message}; where is not known, because faulthandler was disabled or writes to another file", ""
        message = f"{message} ({self.location})"
        return f"{message}, in native code, such as a C extension", self.stack


def find_user_crash(positions: Mapping[str, int]) -> UserCrash | None:
    """Look for it in each file of a dead process's output, after the position in bytes.

    Ray ends the name of such a file with the number of its process.
    """
    for path, position in positions.items():
        pid = PurePath(path).stem.rpartition("-")[2]
        output = read_output_end(path, position)
        if (received := re.search(SIGNAL.format(pid=re.escape(pid)), output, re.MULTILINE)) is not None:
            if received[1] in ELSEWHERE and FATAL not in output:
                return UserCrash(received[1], "", "")
            return _crash(received[1], output[received.end() :])
    return None


def _crash(signal: str, output: str) -> UserCrash | None:
    """None if the thread ran Ray's code or Paceline's, or none of Python's: the crash is not the user's to correct."""
    found = STACK.search(output)
    if found is None:
        return None
    ours = trainer_folder()
    frames = FRAME.findall(found[1])
    called_by = next((number for number, (file, *_) in enumerate(frames) if file.startswith(ours)), None)
    if called_by is None and CUT not in found[1]:
        return None
    of_user = frames[:called_by]
    if not of_user or RAY.search(of_user[0][0]):
        return None
    own = [frame for frame in of_user if not LIBRARY.search(frame[0])] or of_user
    lines = "".join(f'  File "{file}", line {line} in {name}\n' for file, line, name in of_user)
    return UserCrash(signal, f"{PurePath(own[0][0]).name}:{own[0][1]}", f"Stack (most recent call first):\n{lines}")
