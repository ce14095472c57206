from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcoll.transport.lane.segment import Ticket, UnavailableError
from zcoll.transport.lane.talk import VERSION, Word, is_talk, read, write

TICKET = Ticket("boot", 7, 3, "token", 4096)


@pytest.mark.parametrize("word", Word)
def test_words_arrive_as_they_were_said(word: Word) -> None:
    frames = write(word, memory=TICKET, why="so")
    assert is_talk(frames)
    said, fields = read(frames)
    assert said is word
    assert Ticket.read(fields["memory"]) == TICKET
    assert fields["why"] == "so"


@pytest.mark.parametrize("frames", [[b"zc"], [b""], [b"zl", b""], [b"z"]])
def test_messages_of_the_protocol_are_no_talk(frames: list[bytes]) -> None:
    assert not is_talk(list(frames))


@given(st.binary(max_size=40) | st.binary(max_size=20).map(lambda rest: b"{" + rest))
def test_any_bytes_are_a_word_or_refused(garbage: bytes) -> None:
    for start in (b"zl", b"zl" + bytes((VERSION, Word.OFFER))):
        try:
            word, fields = read([start + garbage])
        except UnavailableError:
            continue
        assert word in Word
        assert isinstance(fields, dict)


def test_another_version_is_told() -> None:
    frames = [b"zl" + bytes((VERSION + 1, Word.OFFER)) + b"{}"]
    with pytest.raises(UnavailableError, match="another version"):
        read(list(frames))
