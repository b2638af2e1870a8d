"""Intake: one request of Triton Server becomes sequences of the engine, or stops one that runs."""

from __future__ import annotations

import dataclasses
import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import triton_python_backend_utils as pb_utils

from backend.errors import InvalidRequest
from backend.guide import Guide
from backend.request import Request
from backend.scheduler.scheduler import Scheduler
from backend.serving.engine_thread import EngineThread
from backend.serving.guide_workers import GuideWorkers
from backend.serving.guided_inputs import GuideText
from backend.serving.inputs import Inputs
from backend.serving.metrics.counts import EngineCounts
from backend.serving.open_requests import OpenRequests
from backend.serving.request_parser import SHOWN_NAMES, ParsedRequest, RequestParser
from backend.serving.response_stream import Failure, ResponseStream
from backend.serving.sender_pool import SenderPool
from backend.serving.streams import Streams
from backend.serving.tracing.tracing import Tracing
from backend.serving.triton_io import TritonRequest, chosen_id, own_parameters, read_inputs


@dataclass(frozen=True, kw_only=True, slots=True)
class Intake:
    """Validates and hands over. Only for the one thread in which Triton Server calls ``execute``.

    clock: the scheduler's, in seconds. numbers: of sequences: both their id and their arrival order.
    """

    parser: RequestParser
    streams: Streams
    scheduler: Scheduler
    clock: Callable[[], float]
    engine: EngineThread
    guides: GuideWorkers
    senders: SenderPool
    requests: OpenRequests
    counts: EngineCounts
    tracing: Tracing
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def take(self, request: Any) -> bool:
        """Submit a request, or carry out a stop; True if the engine has one more to hold. Raises InvalidRequest."""
        with self.counts.refusals(None):
            inputs, client_id = read_inputs(request, SHOWN_NAMES), chosen_id(request)
            stops = inputs.boolean("stop", False)
            parsed = None if stops else self.parser.parse(inputs, own_parameters(request))
        if parsed is None:
            self._stop(inputs, client_id)
            request.get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return False
        self._submit(request, client_id, parsed)
        return True

    def _stop(self, inputs: Inputs, client_id: str) -> None:
        """``stop``: by the engine's own key if there is one, else by the request id that the two requests share."""
        if "engine_key" in inputs:
            self.requests.stop_key(inputs.integer("engine_key"))
        elif client_id:
            self.requests.stop_client(client_id)
        else:
            raise InvalidRequest("stop", "needs the request id of the request to stop")

    def _submit(self, request: Any, client_id: str, parsed: ParsedRequest) -> None:
        """One engine request per sequence asked for; the further ones share the first one's computed prompt."""
        numbers = [next(self.numbers) for _ in range(parsed.num_sequences)]
        keys = [secrets.randbits(64) for _ in numbers]
        way_back = TritonRequest(request, len(parsed.prompt), parsed.num_sequences, parsed.left_out)
        arrived, timeout = self.clock(), request.timeout()
        first = Request(
            request_id=numbers[0],
            prompt=parsed.prompt,
            sampling=parsed.sampling,
            level=parsed.level,
            arrival=numbers[0],
            arrived=arrived,
            deadline=arrived + timeout / 1e6 if timeout else None,
            tenant=parsed.tenant,
            salt=parsed.salt,
            trace=self.tracing.context(request, parsed.trace),
            beam_watch=self.streams.beam_watch(parsed),
        )
        with self.counts.refusals(parsed.level):
            self.scheduler.check_fits(first)
        self.counts.sequences.observe(parsed.num_sequences)
        if parsed.announce:
            way_back.announce(keys[0])
        streams = {}
        for index, (number, key) in enumerate(zip(numbers, keys, strict=True)):
            streams[number] = self.streams.stream(parsed, way_back.member(index, key))
            # Triton Server 2.51 tells no running step of an ensemble, and no model's own request, that its client has
            # gone: the detokenizer and the entries ask of theirs.
            asked_elsewhere = parsed.wants_text or parsed.announce
            self.requests.add(number, client_id, streams[number], key, seldom=asked_elsewhere)
        if parsed.guide is None:
            self._hand_over(first, streams)
        else:
            self._submit_guided(parsed.guide, first, streams)

    def _submit_guided(self, wish: GuideText, first: Request, streams: Mapping[int, ResponseStream]) -> None:
        """Submit once the guide is compiled. Meanwhile the client may stop the request, or leave."""

        def ready(guide: Guide) -> None:
            sampling = dataclasses.replace(first.sampling, guide=guide)
            self._hand_over(dataclasses.replace(first, sampling=sampling), streams)

        def fail(failure: Failure) -> None:
            for number, stream in streams.items():
                stream.fail(*failure)
                self.senders.submit(stream, number)

        self.guides.submit(wish, streams, ready, fail)

    def _hand_over(self, first: Request, streams: Mapping[int, ResponseStream]) -> None:
        for index, (number, stream) in enumerate(streams.items()):
            self.engine.submit(_sibling(first, index, number, stream), stream)


def _sibling(first: Request, index: int, number: int, stream: ResponseStream) -> Request:
    """Sequence ``index`` of a request. Each has its own seed, or all would say the same."""
    seed = (first.sampling.seed + index) % (1 << 64)
    return dataclasses.replace(
        first,
        request_id=number,
        arrival=number,
        # Logits of the prompt come once, with the first.
        sampling=dataclasses.replace(
            first.sampling, seed=seed, context_logits=first.sampling.context_logits and not index
        ),
        leader=first.request_id if index else None,
        stop_watch=stream if stream.watches else None,
    )
