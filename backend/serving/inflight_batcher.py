"""The Triton Server model ``inflight_batcher``: token ids in, token ids out, decoupled."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from backend import garbage
from backend.config import EngineConfig
from backend.device_choice import chosen_device
from backend.engine_builder import LoadedEngine, build_engine
from backend.errors import InvalidRequest
from backend.serving.beam_inputs import BeamLimits
from backend.serving.drain_watch import DrainWatch
from backend.serving.engine_thread import EngineThread
from backend.serving.gate import Gate
from backend.serving.guide_workers import GuideWorkers
from backend.serving.heartbeat import Heartbeat
from backend.serving.intake import Intake
from backend.serving.metrics.alias_families import ALIAS_FAMILIES
from backend.serving.metrics.counts import EngineCounts
from backend.serving.metrics.engine_families import ENGINE_FAMILIES
from backend.serving.metrics.family import Source
from backend.serving.metrics.publisher import Cadence, Publisher
from backend.serving.metrics.server_page import ServerPage
from backend.serving.open_requests import OpenRequests
from backend.serving.pace import Pace
from backend.serving.queue_waker import REQUEST_ID, QueueWaker
from backend.serving.request_parser import RequestParser
from backend.serving.response_stream import Failure
from backend.serving.sender_pool import SenderPool
from backend.serving.stops import look_once_more
from backend.serving.streams import Streams
from backend.serving.tracing.tracing import tracing_of
from backend.serving.triton_io import ServerLog, all_have_id, check_single_instance, error_response, parameters_of
from backend.serving.watchdog import Watchdog
from backend.text.guided_decoding import GuideCompiler, NoGuidesError
from backend.text.token_bytes import TokenBytes

_log = logging.getLogger(__name__)
_DEAD_ENGINE = 70
_CPU_PACE_MS = 40.0
_METRICS_SECONDS, _BUSY_METRICS_SECONDS = 1.0, 5.0


class InflightBatcher:
    """Wires Triton Server to one engine. execute() has requests taken in; the engine thread does the rest."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the model. Raises TritonModelException with one line for the operator."""
        try:
            check_single_instance(args)
            config = EngineConfig.from_parameters(parameters_of(args))
            ServerLog.install(config.log_level)
            self._tracing = tracing_of(config.otlp_endpoint)
            loaded = build_engine(config)
            token_bytes = TokenBytes.from_directory(Path(config.model_dir))
        except (ValueError, MemoryError, OSError) as error:
            raise pb_utils.TritonModelException(str(error)) from error
        compiler, no_guides = _guides(config, loaded)
        self._counts = EngineCounts(config.priority_levels, loaded.max_seq_len)
        loaded.engine.watch = self._counts.watching(loaded.engine.watch)
        self._tracing.start(loaded.engine)
        self._start(config, loaded, compiler, ServerPage(args["model_name"], args["model_version"]))
        self._waker = QueueWaker(partial(look_once_more, args["model_name"], REQUEST_ID), times=2)
        self._intake = Intake(
            parser=_parser(config, loaded, no_guides),
            streams=Streams(token_bytes, loaded.model.vocab_size, loaded.engine.clock, config.stream_interval),
            scheduler=loaded.engine.scheduler,
            clock=loaded.engine.clock,
            engine=self._engine,
            guides=self._guides,
            senders=self._senders,
            requests=self._requests,
            counts=self._counts,
            tracing=self._tracing,
        )
        _log.info(
            "%s: %d slots, pool of %d tokens, at most %d tokens per request",
            loaded.model.architecture,
            config.max_batch_size,
            loaded.pool_tokens,
            loaded.max_seq_len,
        )

    def _start(
        self, config: EngineConfig, loaded: LoadedEngine, compiler: GuideCompiler | None, page: ServerPage
    ) -> None:
        self._senders = SenderPool(config.sender_threads)
        self._engine = EngineThread(
            loaded.engine,
            self._senders,
            on_step=lambda: self._gate.notify(),
            on_death=self._die,
            counts=self._counts,
            pace=_pace(config),
        )
        self._publisher = Publisher(
            (ENGINE_FAMILIES + (ALIAS_FAMILIES if config.metrics_aliases else ())) if config.metrics else (),
            Source(self._counts, loaded.engine.scheduler, lambda: self._engine.num_held),
            page,
            _metrics_cadence(config, lambda: self._engine.busy),
        )
        self._heartbeat = Heartbeat(config.control_dir, config.stuck_seconds)
        self._watchdog = Watchdog(
            beats=lambda: self._engine.beats,
            busy=lambda: self._engine.busy,
            on_stuck=lambda: self._engine.give_up("the engine is stuck; the model must be loaded again"),
            limit=config.stuck_seconds,
            on_look=self._heartbeat.beat,
        )
        self._guides = GuideWorkers(compiler, self._engine.cancel)
        self._requests = OpenRequests(self._guides.cancel, config.cancel_poll_ms / 1e3)
        self._gate = Gate(
            lambda: self._engine.num_held + self._guides.num_pending,
            lookahead=config.lookahead_requests,
            bound=config.lookahead_bound,
            interval=config.admission_interval_ms / 1e3,
        )
        self._drain = DrainWatch(
            config.control_dir,
            refuse=self._refuse_from_now_on,
            idle=lambda: not self._engine.num_open and self._requests.all_answered,
            stop=lambda: self._engine.stop("the server is shutting down and the time to finish is over"),
        )
        garbage.settle()
        self._engine.start()
        self._watchdog.start()
        self._drain.start()
        self._publisher.start()

    def _refuse_from_now_on(self) -> None:
        self._engine.refuse("the server is shutting down")
        self._gate.release()  # what stands in the server's queue is refused, too

    def _die(self) -> None:
        """End this process: the only way in which whoever watches Triton Server 2.51 can see that a model is dead."""
        self._gate.release()
        self._senders.stop()
        os._exit(_DEAD_ENGINE)

    def execute(self, requests: list[Any]) -> None:
        """Take requests in. Each is answered through its own response sender, refused ones at once.

        Returns slowly while the engine holds all it can look ahead over: the backlog is the server's queue's.
        """
        with self._waker.executing(for_clients=not all_have_id(requests, REQUEST_ID)):
            self._take_in(requests)

    def _take_in(self, requests: list[Any]) -> None:
        for request in requests:
            try:
                if self._intake.take(request):
                    self._gate.pause()
            except InvalidRequest as error:
                _refuse(request, Failure(str(error), "INVALID_ARG"))
            except Exception:
                _log.exception("a request could not be taken in")
                self._counts.refuse(None)
                _refuse(request, Failure("the request could not be taken in", "INTERNAL"))

    def finalize(self) -> None:
        """Unload: the step under way ends, open requests get an error, threads are joined."""
        self._waker.close()
        self._gate.release()
        self._watchdog.stop()
        self._heartbeat.close()
        self._drain.close()
        self._guides.close()
        self._engine.stop()
        self._requests.close()
        self._senders.stop()
        self._publisher.close()
        self._tracing.close()
        # A response sender that lives on when the process's shared memory is gone gives a piece of it back: Triton
        # Server 2.51 was seen to hang, and the process to end by a broken heap.
        vars(self).clear()
        garbage.collect_all()


def _pace(config: EngineConfig) -> Pace:
    """As configured; by itself only where the engine computes on the cores that responses need."""
    automatic = _CPU_PACE_MS if chosen_device(config) == "cpu" else 0.0
    return Pace((automatic if config.stream_pace_ms == -1 else config.stream_pace_ms) / 1e3)


def _metrics_cadence(config: EngineConfig, busy: Callable[[], bool]) -> Cadence:
    """As configured; by itself seldom while the engine computes on the cores that round trips need."""
    if config.metrics_interval_ms != -1:
        return Cadence(config.metrics_interval_ms / 1e3)
    seldom = chosen_device(config) == "cpu"
    return Cadence(_METRICS_SECONDS, _BUSY_METRICS_SECONDS if seldom else _METRICS_SECONDS, busy)


def _guides(config: EngineConfig, loaded: LoadedEngine) -> tuple[GuideCompiler | None, str]:
    """What compiles guides, or why there is none."""
    if loaded.no_guides:
        return None, loaded.no_guides
    try:
        directory = Path(config.model_dir)
        return GuideCompiler(directory, loaded.model.vocab_size, sorted(loaded.model.eos_token_ids)), ""
    except NoGuidesError as error:
        _log.warning("no guided decoding: %s", error)
        return None, str(error)


def _parser(config: EngineConfig, loaded: LoadedEngine, no_guides: str) -> RequestParser:
    return RequestParser(
        vocab_size=loaded.model.vocab_size,
        eos_ids=frozenset(loaded.model.eos_token_ids),
        priority_levels=config.priority_levels,
        default_level=config.default_priority_level,
        echo_by_default=not config.exclude_input_in_output,
        no_guides=no_guides,
        beams=BeamLimits(config.max_beam_width, loaded.no_host_logits),
        no_context_logits=loaded.no_host_logits,
    )


def _refuse(request: Any, failure: Failure) -> None:
    request.get_response_sender().send(error_response(failure), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
