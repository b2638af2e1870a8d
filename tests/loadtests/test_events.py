"""Server-sent events as they come over a socket: an answer that is cut off is not one that has ended."""

from __future__ import annotations

import socket
import threading

import pytest

from loadtests.doors.base import DoorError
from loadtests.doors.events import events

EVENT = b'data: {"n": 1}\n\n'
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def sized(length):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length


def answered(payload):
    """The events of a server that says this and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(payload)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield from events(f"http://127.0.0.1:{server.getsockname()[1]}/generate_stream", {})
        finally:
            thread.join()


@pytest.mark.parametrize("payload", [CHUNKED + 2 * CHUNK + b"0\r\n\r\n", sized(2 * len(EVENT)) + 2 * EVENT])
def test_an_answer_that_ends_is_read_to_its_end(payload):
    assert list(answered(payload)) == [{"n": 1}] * 2


@pytest.mark.parametrize(
    "payload", [CHUNKED + CHUNK, CHUNKED + CHUNK + CHUNK[:9], CHUNKED, sized(2 * len(EVENT)) + EVENT], ids=range(4)
)
def test_an_answer_that_is_cut_off_is_an_error(payload):
    with pytest.raises(DoorError):
        list(answered(payload))


def test_an_error_that_the_server_tells_is_the_error():
    told = b'data: {"error": "the engine step failed"}\n\n'
    with pytest.raises(DoorError, match="the engine step failed"):
        list(answered(sized(len(told)) + told))
