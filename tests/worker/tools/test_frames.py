import asyncio
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundelay_worker.tools.isolation.frames import LONGEST_FRAME, BrokenFrame, pack, read_frame, receive

frames = st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text()), max_size=5)


def receive_from(sent: bytes):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        return receive(ours)


def read_from(sent: bytes):
    async def scenario():
        reader = asyncio.StreamReader()
        reader.feed_data(sent)
        reader.feed_eof()
        return await read_frame(reader)

    return asyncio.run(scenario())


@pytest.mark.parametrize("read", [receive_from, read_from])
@given(frame=frames)
def test_a_frame_comes_out_as_it_went_in(read, frame):
    assert read(pack(frame)) == frame


@pytest.mark.parametrize("read", [receive_from, read_from])
@pytest.mark.parametrize("cut", [0, 2, 4, 7])
def test_a_closed_connection_is_the_end_wherever_it_is_cut(read, cut):
    assert read(pack({"kind": "began"})[:cut]) is None


@pytest.mark.parametrize("read", [receive_from, read_from])
@pytest.mark.parametrize(
    "sent", [struct.pack(">I", LONGEST_FRAME + 1), struct.pack(">I", 3) + b"abc", struct.pack(">I", 2) + b"[]"]
)
def test_what_is_no_frame_is_refused(read, sent):
    with pytest.raises(BrokenFrame):
        read(sent)
