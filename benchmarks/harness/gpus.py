"""The GPUs of this machine, as nvidia-smi shows them."""

import argparse
import shutil
import subprocess
import sys

QUERY_SECONDS = 30


def gpu_count() -> int:
    return len(_query("uuid"))


def mig_modes() -> list[str]:
    """`Enabled`, `Disabled` or `[N/A]` for each GPU."""
    return _query("mig.mode.current")


def add_worker_options(parser: argparse.ArgumentParser) -> None:
    """`--workers` and `--gpu`; `worker_count` reads them."""
    parser.add_argument("--workers", type=int, help="of each trial; 2, or 1 where --gpu finds only one GPU")
    parser.add_argument("--gpu", action="store_true", help="a GPU for each worker, so NCCL between them")


def worker_count(options: argparse.Namespace) -> int:
    """End the program if there are fewer GPUs than it needs."""
    if not options.gpu:
        return options.workers or 2
    found = gpu_count()
    workers = int(options.workers or min(2, found))
    if found < max(1, workers):
        sys.exit(f"--gpu needs {max(1, workers)} GPUs; nvidia-smi shows {found}")
    return workers


def _query(field: str) -> list[str]:
    if (program := shutil.which("nvidia-smi")) is None:
        return []
    command = [program, f"--query-gpu={field}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_SECONDS, check=False)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []
