"""The entry point of the command line, `paceline`.

`paceline serve` loads no other command: most of its start is imports, and a service that was killed must be back soon.
"""

import sys
from importlib import import_module


def main() -> None:
    only_serves = sys.argv[1:2] == ["serve"]
    import_module("service.cli.serve_alone" if only_serves else "service.cli.all_commands").main()
