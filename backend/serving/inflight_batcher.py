"""The Triton Server model ``inflight_batcher``: token ids in, token ids out, decoupled."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from backend.config import EngineConfig
from backend.engine_builder import LoadedEngine, build_engine
from backend.errors import InvalidRequest
from backend.request import Request
from backend.serving.engine_thread import EngineThread
from backend.serving.request_parser import SHOWN_NAMES, ParsedRequest, RequestParser, counter
from backend.serving.response_stream import Failure, ResponseStream
from backend.serving.sender_pool import SenderPool
from backend.serving.triton_io import ServerLog, TritonSender, error_response, parameters_of, read_inputs
from backend.text.text_stream import TextStream
from backend.text.token_bytes import TokenBytes

_log = logging.getLogger(__name__)


class InflightBatcher:
    """Wires Triton Server to one engine. execute() validates and returns; the engine thread does the rest."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the model. Raises TritonModelException with one line for the operator."""
        try:
            config = EngineConfig.from_parameters(parameters_of(args))
            ServerLog.install(config.log_level)
            loaded = build_engine(config)
            self._token_bytes = TokenBytes.from_directory(Path(config.model_dir))
        except (ValueError, MemoryError, OSError) as error:
            raise pb_utils.TritonModelException(str(error)) from error
        self._parser = _parser(config, loaded)
        self._scheduler = loaded.engine.scheduler
        self._numbers = counter()
        self._senders = SenderPool(config.sender_threads)
        self._engine = EngineThread(loaded.engine, self._senders)
        _log.info(
            "%s: %d slots, pool of %d tokens, at most %d tokens per request",
            loaded.model.architecture,
            config.max_batch_size,
            loaded.pool_tokens,
            loaded.max_seq_len,
        )

    def execute(self, requests: list[Any]) -> None:
        """Take requests in. Each is answered through its own response sender, refused ones at once."""
        for request in requests:
            try:
                parsed = self._parser.parse(read_inputs(request, SHOWN_NAMES), request.parameters())
                self._submit(request, parsed)
            except InvalidRequest as error:
                _refuse(request, Failure(str(error), "INVALID_ARG"))
            except Exception:
                _log.exception("a request could not be taken in")
                _refuse(request, Failure("the request could not be taken in", "INTERNAL"))

    def _submit(self, request: Any, parsed: ParsedRequest) -> None:
        echo = parsed.prompt if parsed.echo else ()
        text = None
        if parsed.wants_text or parsed.stop_words:
            text = TextStream(self._token_bytes, parsed.stop_words, echo)
        stream = ResponseStream(
            TritonSender(request, len(parsed.prompt)), streaming=parsed.streaming, echo=echo, text=text
        )
        number = next(self._numbers)
        admitted = Request(
            request_id=number,
            prompt=parsed.prompt,
            sampling=parsed.sampling,
            level=parsed.level,
            arrival=number,
            stop_watch=stream,
        )
        self._scheduler.check_fits(admitted)
        self._engine.submit(admitted, stream)

    def finalize(self) -> None:
        """Unload: the step under way ends, open requests get an error, threads are joined."""
        self._engine.stop()
        self._senders.stop()


def _parser(config: EngineConfig, loaded: LoadedEngine) -> RequestParser:
    return RequestParser(
        vocab_size=loaded.model.vocab_size,
        eos_ids=frozenset(loaded.model.eos_token_ids),
        priority_levels=config.priority_levels,
        default_level=config.default_priority_level,
        echo_by_default=not config.exclude_input_in_output,
    )


def _refuse(request: Any, failure: Failure) -> None:
    request.get_response_sender().send(error_response(failure), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
