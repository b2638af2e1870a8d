"""The one response of a search: rows of unequal length, padded; texts cut; something even where nothing was said."""

import numpy as np

from backend.beam_params import BeamParams
from backend.endings import FinishReason
from backend.request import Sequence
from backend.serving.beam_stream import BeamStream, BeamWishes
from backend.serving.extra_outputs import ExtraOutputs
from backend.serving.response_stream import Chunk
from backend.text.beam_watch import BeamTextWatch
from backend.text.text_stream import TextStream
from backend.text.token_bytes import TokenBytes
from tests.engine.engines import Clock, oracle_engine, request, run
from tests.oracle import VOCAB, lone_search

PROMPT = tuple(7 + 13 * n for n in range(9))  # whose best two answers differ in length
ECHO, PAD = (1, 2), 7
LETTERS = TokenBytes(
    tuple(bytes([ord("a") + n % 26]) for n in range(VOCAB)), byte_fallback=False, strips_first_space=False
)


class Nobody:
    def send(self, chunk: Chunk) -> None:
        raise AssertionError

    def is_cancelled(self) -> bool:
        return False


def searched(stream: BeamStream, watch: BeamTextWatch | None = None, **sampling: object) -> tuple[Sequence, Chunk]:
    """A search of three beams, of which the best two are asked for, and its response."""
    beams = BeamParams(width=3, num_returned=2, early_stopping=0)
    engine, _ = oracle_engine()
    sequence = engine.add(request(PROMPT, 12, beams=beams, beam_watch=watch, **sampling))
    stream.follow(sequence)
    assert not stream.wants_sending()
    run(engine)
    assert sequence.finish_reason is not None
    stream.finish(sequence.finish_reason)
    assert stream.wants_sending()
    chunk = stream.take()
    assert chunk is not None
    assert stream.take() is None
    return sequence, chunk


def test_answers_are_rows_the_shorter_ones_padded_each_with_its_own_reason() -> None:
    stream = BeamStream(Nobody(), BeamWishes(ECHO, PAD, True, None), None)
    sequence, chunk = searched(stream, end_ids=frozenset(range(0, VOCAB, 9)))
    best, second = lone_search(sequence.request.prompt, sequence.request.sampling)
    assert len(best.output) != len(second.output)
    widest = max(len(best.output), len(second.output))
    for row, answer in zip(chunk.extra["output_ids"].tolist(), (best, second), strict=True):
        assert row == [*ECHO, *answer.output, *[PAD] * (widest - len(answer.output))]
    assert chunk.extra["sequence_length"].tolist() == [2 + len(best.output), 2 + len(second.output)]
    assert chunk.extra["finish_reason"].tolist() == [best.reason.encode(), second.reason.encode()]
    assert chunk.extra["num_output_tokens"].tolist() == [len(best.output) + len(second.output)]
    assert chunk.extra["cum_log_probs"].tolist() == [np.float32(sum(a.log_probs)) for a in (best, second)]
    assert chunk.extra["output_log_probs"].shape == chunk.extra["log_prob_ids"].shape == (2, widest)
    assert chunk.finish_reason is best.reason
    assert chunk.final


def test_a_stop_string_ends_a_beam_and_its_text_ends_before_it() -> None:
    first = searched(BeamStream(Nobody(), BeamWishes((), PAD, False, None), None))[0]
    said = LETTERS.join(first.output).decode()
    stop = said[4:6]
    wishes = BeamWishes(ECHO, PAD, False, lambda: TextStream(LETTERS, [stop], ECHO))
    beams = BeamParams(width=3, num_returned=2, early_stopping=0)
    engine, _ = oracle_engine()
    watch = BeamTextWatch.of(LETTERS, [stop], 0)
    asked = request(first.request.prompt, 12, beams=beams, beam_watch=watch)
    stream = BeamStream(Nobody(), wishes, None)
    sequence = engine.add(asked)
    stream.follow(sequence)
    run(engine)
    assert sequence.group is not None
    assert FinishReason.STOP in [answer.reason for answer in sequence.group.answers]
    stream.finish(FinishReason.STOP)
    chunk = stream.take()
    assert chunk is not None
    spans = chunk.extra["text_span"].reshape(-1, 2).tolist()
    for answer, row, (start, end) in zip(sequence.group.answers, chunk.extra["text_ids"].tolist(), spans, strict=True):
        whole = LETTERS.join(answer.output).decode()
        shown = LETTERS.join(row)[start:end].decode()
        assert shown == LETTERS.join(ECHO).decode() + whole[: len(whole) - 2 * (answer.reason is FinishReason.STOP)]
        assert stop not in shown


def test_who_leaves_before_anything_was_said_gets_one_empty_answer_and_its_measurements() -> None:
    clock = Clock()
    engine, _ = oracle_engine(clock=clock)
    beams = BeamParams(width=2, num_returned=2)
    sequence = engine.add(request(9, 4, beams=beams))
    extra = ExtraOutputs(request(9, 4).sampling, VOCAB, True, clock)
    stream = BeamStream(Nobody(), BeamWishes((), PAD, True, lambda: TextStream(LETTERS)), extra)
    stream.follow(sequence)
    engine.cancel(sequence)
    clock.now = 3.0
    stream.finish(FinishReason.CANCELLED)
    chunk = stream.take()
    assert chunk is not None
    assert chunk.extra["output_ids"].shape == (1, 0)
    assert chunk.extra["finish_reason"].tolist() == [b"cancelled"]
    assert chunk.extra["text_span"].tolist() == [0, 0]
    assert chunk.extra["last_token_time_ns"].tolist() == [3_000_000_000]
