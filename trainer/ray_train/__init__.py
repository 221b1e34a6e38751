"""All code that uses Ray's internals. Only this folder imports them (see `tests/architecture`)."""
