"""The signal handlers of long commands."""

from __future__ import annotations

import signal

import pytest

from dragfl.cli.interrupt import catch_interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_to_stop_and_the_second_one_stops(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), catch_interrupts() as should_stop:
        assert not should_stop()
        signal.raise_signal(number)
        assert should_stop()
        assert "Ctrl-C again stops immediately" in capsys.readouterr().err
        signal.raise_signal(number)
    assert signal.getsignal(number) is before
