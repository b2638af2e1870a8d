"""The gRPC client of the scripts and load tests: how it ends its calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tritonclient.grpc import service_pb2 as pb

from scripts.generate_stream import Client, Piece, ServerError
from tests.gateway.fake_triton import FakeTriton, hello

LINGERS_SECONDS = 0.5


class Lingering(FakeTriton):
    """Ends its calls a while after the last response; `was_left`: whether the client went in that while."""

    def __init__(self) -> None:
        super().__init__(tokenizer_dir="", answer=self.linger)
        self.was_left: bool | None = None

    def linger(self, request: pb.ModelInferRequest) -> Iterator[Any]:
        if request.parameters["priority"].uint64_param:
            yield pb.ModelStreamInferResponse(error_message="refused:\n  the queue is full")
        else:
            yield from hello(request)
        self.was_left = self.left.wait(LINGERS_SECONDS)


@pytest.fixture
def triton() -> Iterator[Lingering]:
    fake = Lingering()
    server = fake.start()
    yield fake
    server.stop(None)


def test_a_whole_answer_is_read_to_the_end_of_its_call(triton: Lingering) -> None:
    # Triton Server 2.51 keeps some 14 KB for good of a call that is cancelled as it ends.
    client = Client(triton.url)
    assert list(client.generate({"text_input": b"Hi"})) == [Piece("Hel", 3), Piece("lo", 2)]
    assert triton.was_left is False
    client.close()


def test_a_refusal_is_raised_at_the_end_of_its_call(triton: Lingering) -> None:
    client = Client(triton.url)
    with pytest.raises(ServerError, match=r"^refused: the queue is full$"):
        list(client.generate({"text_input": b"Hi"}, queue_priority=1))
    assert triton.was_left is False
    client.close()


def test_a_reader_that_leaves_cancels_the_call(triton: Lingering) -> None:
    client = Client(triton.url)
    pieces = client.generate({"text_input": b"Hi"})
    assert next(pieces) == Piece("Hel", 3)
    pieces.close()
    assert triton.left.wait(5)
    client.close()
