"""The entry point of the command line, `paceline`.

`paceline serve` loads no other command: most of its start is imports, and a service that was killed must be back soon.
"""

import os
import sys
from importlib import import_module

from service.cli.standard_output import checked_output
from service.runtime import garbage_collection

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def main() -> None:
    try:
        _run()
    except KeyboardInterrupt:  # while modules are imported; the commands' library handles it afterwards
        sys.exit(INTERRUPTED)


def _run() -> None:
    if sys.argv[1:2] == ["serve"]:
        garbage_collection.pause()
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would read the metadata of all packages
        import_module("service.cli.serve_alone").main()
    else:
        with checked_output():
            import_module("service.cli.all_commands").main()
