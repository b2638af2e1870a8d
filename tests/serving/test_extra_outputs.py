"""What a response carries for those who asked: each token's numbers once, in the response that has the token."""

import threading

import numpy as np
import pytest

from backend.endings import FinishReason
from backend.request import Sequence
from backend.serving.extra_outputs import ExtraOutputs
from backend.serving.response_stream import Chunk, ResponseStream
from backend.token_detail import TokenDetail
from tests.engine.engines import Clock, oracle_engine, request, run
from tests.oracle import log_prob

VOCAB = 3


class Nobody:
    def send(self, chunk: Chunk) -> None:
        raise AssertionError

    def is_cancelled(self) -> bool:
        return False


def detail(n: int) -> TokenDetail:
    logits = np.array([n, 2 * n, 3 * n], np.float32).tobytes()
    return TokenDetail(-0.5 * n, ((n, -0.1 * n), (n + 1, -0.2 * n)), logits)


def stream_of(sequence: Sequence, measured: bool = False, clock: Clock | None = None) -> ResponseStream:
    extra = ExtraOutputs(sequence.request.sampling, VOCAB, measured, clock or Clock())
    stream = ResponseStream(Nobody(), streaming=True, echo=(), text=None, extra=extra)
    stream.follow(sequence)
    return stream


def give(stream: ResponseStream, sequence: Sequence, *numbers: int) -> Chunk:
    for n in numbers:
        sequence.add_detail(detail(n))
        stream.deliver(n)
    chunk = stream.take()
    assert chunk is not None
    return chunk


def test_each_response_has_the_numbers_of_its_own_tokens_and_the_sum_of_all_so_far() -> None:
    sequence = Sequence(request(3, 9, log_probs=True, top_log_probs=2, generation_logits=True))
    stream = stream_of(sequence)
    first, second = give(stream, sequence, 1, 2), give(stream, sequence, 4)
    stream.finish(FinishReason.LENGTH)
    last = stream.take()
    assert last is not None
    assert first.extra["output_log_probs"].tolist() == [[-0.5, -1.0]]
    assert second.extra["output_log_probs"].tolist() == [[-2.0]]
    assert [chunk.extra["log_prob_ids"].tolist() for chunk in (first, second)] == [[[1, 2]], [[4]]]
    assert [float(chunk.extra["cum_log_probs"][0]) for chunk in (first, second, last)] == [-1.5, -3.5, -3.5]
    assert first.extra["top_log_prob_ids"].tolist() == [[1, 2], [2, 3]]
    assert first.extra["top_log_probs"].tolist() == [pytest.approx([-0.1, -0.2]), pytest.approx([-0.2, -0.4])]
    assert second.extra["generation_logits"].tolist() == [[[4, 8, 12]]]
    shapes = {name: array.shape for name, array in last.extra.items()}
    assert shapes == {
        "output_log_probs": (1, 0),
        "log_prob_ids": (1, 0),
        "cum_log_probs": (1,),
        "top_log_prob_ids": (0, 2),
        "top_log_probs": (0, 2),
        "generation_logits": (1, 0, VOCAB),
    }
    assert {name: array.dtype.name for name, array in first.extra.items()} == {
        **dict.fromkeys(first.extra, "float32"),
        "log_prob_ids": "int32",
        "top_log_prob_ids": "int32",
    }


def test_measurements_come_with_the_last_response_in_nanoseconds() -> None:
    clock, sequence = Clock(), Sequence(request(3, 9, arrived=1.5))
    stream = stream_of(sequence, measured=True, clock=clock)
    sequence.first_scheduled, sequence.num_reused_blocks, sequence.num_new_blocks = 2.0, 3, 4
    clock.now = 2.5
    assert give(stream, sequence, 1).extra == {}
    clock.now = 3.25
    give(stream, sequence, 2)
    stream.finish(FinishReason.LENGTH)
    last = stream.take()
    assert last is not None
    assert {name: int(array[0]) for name, array in last.extra.items()} == {
        "kv_cache_reused_blocks": 3,
        "kv_cache_alloc_new_blocks": 4,
        "kv_cache_alloc_total_blocks": 7,
        "arrival_time_ns": 1_500_000_000,
        "first_scheduled_time_ns": 2_000_000_000,
        "first_token_time_ns": 2_500_000_000,
        "last_token_time_ns": 3_250_000_000,
    }


def test_numbers_stay_with_their_tokens_while_a_sender_takes_at_any_moment() -> None:
    sequence = Sequence(request(3, 5000, log_probs=True))
    stream, chunks = stream_of(sequence), []

    def take() -> None:
        while not stream.ended:
            if (chunk := stream.take()) is not None:
                chunks.append(chunk)

    taker = threading.Thread(target=take)
    taker.start()
    for n in range(5000):
        sequence.add_detail(TokenDetail(-float(n)))
        stream.push(n)
    stream.finish(FinishReason.LENGTH)
    taker.join()
    for chunk in chunks:
        assert chunk.extra["output_log_probs"].tolist() == [[-float(n) for n in chunk.ids]]
    assert [n for chunk in chunks for n in chunk.ids] == list(range(5000))


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(("host_slots", "mode"), [(40, "swap"), (0, "recompute")])
def test_under_constant_preemption_each_token_has_the_log_probability_of_its_own_place(
    ahead: bool, host_slots: int, mode: str
) -> None:
    """The oracle model's number for a token is made of all tokens before it, read back through the block table."""
    engine, _ = oracle_engine(blocks=9, slots=3, host_slots=host_slots, mode=mode, ahead=ahead)
    sequences = [engine.add(request(7, 12, level=1 + n % 3, log_probs=True)) for n in range(6)]
    plain = engine.add(request(5, 12))
    run(engine)
    assert sum(sequence.num_preemptions for sequence in sequences) >= 3
    for sequence in sequences:
        ids = sequence.tokens
        expected = [log_prob(ids[:position]) for position in range(sequence.num_prompt, len(ids))]
        assert [one.log_prob for one in sequence.details or ()] == expected
    assert plain.details is None
    assert plain.num_new_blocks >= 4
