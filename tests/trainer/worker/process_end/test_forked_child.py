"""A process that the training function forks ends as in a plain script, and runs nothing of Paceline."""

import subprocess
import sys

import pytest

FORKS = """
import os, sys
from trainer.worker.process_end.forked_child import ending_forked_children

def train_fn():
    child = os.fork()
    if child == 0:
        {child}
        return
    print("code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

with ending_forked_children():
    train_fn()
print("after the trial", flush=True)
"""

ENDS = [
    ("raise ValueError('in the child')", 1, "ValueError: in the child"),
    ("print('trained', end=' ')", 0, ""),
    ("sys.exit(3)", 3, ""),
    ("sys.exit()", 0, ""),
    ("sys.exit('a reason')", 1, "a reason"),
]


@pytest.mark.parametrize(("child", "code", "error"), ENDS)
def test_a_forked_child_ends_with_the_code_and_the_traceback_of_a_plain_script(
    child: str, code: int, error: str
) -> None:
    arguments = [sys.executable, "-c", FORKS.format(child=child)]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.endswith(f"code {code}\nafter the trial\n")
    assert ended.stdout.count("after the trial") == 1
    assert error in ended.stderr
    assert ended.stderr.count("Traceback") == child.startswith("raise")


QUEUES = """
import multiprocessing, os
from trainer.worker.process_end.forked_child import ending_forked_children

context = multiprocessing.get_context("fork")
queue, (to_worker, of_worker) = context.SimpleQueue(), context.Pipe()
results = context.Queue()
worker = context.Process(target=of_worker.recv, daemon=True)

with ending_forked_children():
    worker.start()
    child = os.fork()
    if child == 0:
        own = context.Process(target=queue.put, args=("of its process",))
        own.start()
        results.put(b"x" * 10_000_000)
    else:
        print("results", len(results.get(timeout=60)), "code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(queue.get())
        to_worker.send("end")
        worker.join()
        print("worker", worker.exitcode, flush=True)
"""


def test_a_forked_child_sends_what_its_queues_hold_and_ends_no_process_of_its_parent() -> None:
    arguments = [sys.executable, "-c", QUEUES]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert ended.stderr == ""
    assert ended.stdout == "results 10000000 code 0\nof its process\nworker 0\n"


POOL_AND_THREAD = """
import multiprocessing, threading, time
from concurrent.futures import ProcessPoolExecutor
pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
assert list(pool.map(abs, [-1])) == [1]
ends = threading.Event()
threading.Thread(target=lambda: (ends.wait(), print("of its thread", flush=True))).start()
threading.Thread(target=ends.set).start()
"""


def test_a_forked_child_waits_for_its_threads_and_ends_its_pools_of_processes() -> None:
    text = FORKS.format(child=f"exec({POOL_AND_THREAD!r}, globals())")
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "of its thread\ncode 0\nafter the trial\n"


def test_an_error_of_the_process_itself_is_raised_as_ever() -> None:
    text = FORKS.format(child="os._exit(0)").replace("    train_fn()", "    train_fn(); raise KeyError('parent')")
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "KeyError: 'parent'" in ended.stderr
    assert "after the trial" not in ended.stdout
