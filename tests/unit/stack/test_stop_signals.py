"""Which signals stop the stack."""

import os
import signal

import pytest

from service.stack.up import _stop_signals


@pytest.mark.parametrize(("handler", "stops"), [(signal.SIG_IGN, False), (signal.SIG_DFL, True)])
def test_under_nohup_the_end_of_the_terminal_does_not_stop_the_stack(handler: signal.Handlers, stops: bool) -> None:
    earlier = signal.signal(signal.SIGHUP, handler)
    try:
        with _stop_signals("no-such-tag") as should_stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert should_stop() is stops
    finally:
        signal.signal(signal.SIGHUP, earlier)
