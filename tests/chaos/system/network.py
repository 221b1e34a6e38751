"""The network between an agent with its slots and the services: a TCP proxy of its own process.

`python -m tests.chaos.system.network PORT=PORT,… …` listens on the first port of each argument, and passes each
connection on to one of the other ports that accepts, in turn. While the process is frozen, no byte passes and no
connection ends, as when packets are dropped; when it goes on, what was sent meanwhile arrives. When it is killed,
connections break and are refused.
"""

import asyncio
import contextlib
import itertools
import sys
from collections.abc import Coroutine, Iterator, Sequence

HOST = "127.0.0.1"
CHUNK_BYTES = 65536


def network_command(forwards: Sequence[tuple[int, Sequence[int]]]) -> list[str]:
    """Return the arguments of Python after `-m`. Each forward is a port and the ports behind it."""
    return [__name__, *(f"{port}={','.join(map(str, behind))}" for port, behind in forwards)]


class Forward:
    def __init__(self, port: int, behind: Sequence[int]) -> None:
        self._port, self._behind = port, behind
        self._first = itertools.cycle(range(len(behind)))

    async def run(self) -> None:
        server = await asyncio.start_server(self._pass_on, HOST, self._port)
        async with server:
            await server.serve_forever()

    async def _pass_on(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        with contextlib.closing(to_near):
            for port in self._in_turn():
                with contextlib.suppress(OSError):
                    far, to_far = await asyncio.open_connection(HOST, port)
                    with contextlib.closing(to_far):
                        await _both_ways(_pipe(near, to_far), _pipe(far, to_near))
                    return

    def _in_turn(self) -> Iterator[int]:
        first = next(self._first)
        yield from (*self._behind[first:], *self._behind[:first])


async def _both_ways(*pipes: Coroutine[None, None, None]) -> None:
    """Until one side closes."""
    tasks = [asyncio.ensure_future(pipe) for pipe in pipes]
    _, open_still = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in open_still:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while chunk := await source.read(CHUNK_BYTES):
        target.write(chunk)
        await target.drain()


async def _run(arguments: Sequence[str]) -> None:
    forwards = (argument.split("=") for argument in arguments)
    await asyncio.gather(
        *(Forward(int(port), [int(one) for one in behind.split(",")]).run() for port, behind in forwards)
    )


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1:]))
