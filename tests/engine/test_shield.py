"""Signals are held back while a step is taken, and end a sleep."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from zcoll.engine.shield import NoShield, Shield, Woken, shield

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT = 20_000  # milliseconds that a sleep may take at most


class RingError(Exception):
    """What the program's handler raises."""


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """Let SIGUSR1 be noted and raise; give the notes."""
    notes: list[int] = []

    def handler(number: int, _: object) -> None:
        notes.append(number)
        raise RingError

    before = signal.signal(signal.SIGUSR1, handler)
    yield notes
    signal.signal(signal.SIGUSR1, before)


def ring() -> None:
    signal.raise_signal(signal.SIGUSR1)


def test_a_handler_runs_after_the_step(heard: list[int]) -> None:
    def step() -> None:
        with Shield():
            ring()
            assert not heard

    with pytest.raises(RingError):
        step()
    assert heard == [signal.SIGUSR1]


def test_every_signal_of_a_step_is_heard(heard: list[int]) -> None:
    def step() -> None:
        with Shield():
            ring()
            ring()

    with pytest.raises(RingError):
        step()
    assert len(heard) == 2


def test_handlers_are_back_afterwards(heard: list[int]) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    guard = Shield()
    for _ in range(2):
        with guard:
            assert signal.getsignal(signal.SIGUSR1) is not before
        assert signal.getsignal(signal.SIGUSR1) is before
    with pytest.raises(RingError):
        ring()


@pytest.mark.parametrize("action", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_cannot_raise_stays_as_it_is(action: signal.Handlers) -> None:
    before = signal.signal(signal.SIGUSR2, action)
    try:
        with Shield():
            assert signal.getsignal(signal.SIGUSR2) is action
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_signal_ends_a_sleep(heard: list[int]) -> None:
    arrived = threading.Event()

    def poll(limit: int) -> list[Any]:
        ring()
        arrived.set()  # not reached: the signal comes first
        return [limit]

    def step() -> None:
        with Shield() as guard:
            with pytest.raises(Woken):
                guard.sleep(poll, LIMIT)
            assert not heard

    with pytest.raises(RingError):
        step()
    assert heard
    assert not arrived.is_set()


def test_who_has_been_rung_for_does_not_fall_asleep(heard: list[int]) -> None:
    def step() -> None:
        with Shield() as guard:
            ring()
            with pytest.raises(Woken):
                guard.sleep(lambda limit: [limit], LIMIT)

    with pytest.raises(RingError):
        step()
    assert heard


def test_a_sleep_gives_what_is_ready(heard: list[int]) -> None:
    with Shield() as guard:
        assert guard.sleep(lambda limit: ["socket", limit], 3) == ["socket", 3]
    assert not heard


def test_the_programs_own_code_is_interrupted_at_once(heard: list[int]) -> None:
    def code() -> None:
        ring()
        raise AssertionError("the signal has not interrupted it")

    with Shield() as guard:
        with pytest.raises(RingError):
            guard.run(code)
        assert isinstance(guard.raised, RingError)
        assert guard.run(lambda: 3) == 3
        assert guard.raised is None
    assert len(heard) == 1


def test_what_a_handler_raised_is_known_where_the_code_catches_it(
    heard: list[int],
) -> None:
    def code() -> str:
        try:
            ring()
        except RingError:
            return "caught"
        return "not interrupted"

    with Shield() as guard:
        assert guard.run(code) == "caught"
        assert isinstance(guard.raised, RingError)


def test_code_does_not_begin_after_a_signal(heard: list[int]) -> None:
    ran: list[int] = []

    def step() -> None:
        with Shield() as guard:
            ring()
            with pytest.raises(Woken):
                guard.run(lambda: ran.append(1))

    with pytest.raises(RingError):
        step()
    assert not ran


def test_a_handler_that_the_program_sets_meanwhile_stays(heard: list[int]) -> None:
    """The usual way to let a second Ctrl-C end the program."""

    def give_up() -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    with Shield() as guard:
        guard.run(give_up)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    ring()
    assert not heard


def test_only_the_main_thread_needs_a_shield() -> None:
    found: list[object] = [shield(thorough=True)]
    thread = threading.Thread(target=lambda: found.append(shield(thorough=True)))
    thread.start()
    thread.join()
    assert [type(each) for each in found] == [Shield, NoShield]


def test_without_a_shield_nothing_is_in_the_way() -> None:
    with NoShield() as guard:
        assert guard.sleep(lambda limit: [limit], 5) == [5]
        code: Callable[[], int] = lambda: 4  # noqa: E731
        assert guard.run(code) == 4
        assert guard.raised is None


def test_a_real_time_signals_handler_that_was_changed_stays_changed() -> None:
    number = signal.SIGRTMIN + 1
    before = signal.getsignal(number)
    try:
        signal.signal(number, lambda *_: None)
        with shield(thorough=True):
            pass
        for action in (lambda *_: None, signal.SIG_IGN):
            signal.signal(number, action)
            with shield(thorough=False):
                pass
            assert signal.getsignal(number) is action
    finally:
        signal.signal(number, before)
