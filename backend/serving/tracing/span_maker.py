"""SpanMaker: the thread that makes spans of what the recorder took down. Exporting has another thread, the SDK's."""

from __future__ import annotations

import logging
import queue
import threading
from typing import Any

from backend.serving.tracing.recorder import Arrived, Changed, Record, Recorder
from backend.serving.tracing.request_spans import RequestSpans

_log = logging.getLogger(__name__)
_QUIET_SECONDS = 0.5
"""Without a record for so long, no step will tell any more of who has ended."""
_LONGEST_END_SECONDS = 2.0


class SpanMaker:
    """Whatever fails here is logged, and no request notices."""

    def __init__(self, recorder: Recorder, provider: Any) -> None:
        """provider: the SDK's TracerProvider; it is shut down by ``close``."""
        self._recorder = recorder
        self._provider = provider
        self._tracer = provider.get_tracer("inflight_batcher")
        self._open: dict[int, RequestSpans] = {}
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Make spans of all that was taken down and hand them to the exporter; not for longer than a few seconds."""
        self._recorder.records.put(None)
        self._thread.join(_LONGEST_END_SECONDS)

    def _run(self) -> None:
        going = True
        while going:
            try:
                going = self._take_next()
            except Exception as error:  # one request's, such as a context that is none; the others go on
                _log.warning("a request is not traced to its end: %s", error)
        for spans in self._open.values():
            spans.finish()
        self._provider.shutdown()

    def _take_next(self) -> bool:
        """False when nothing more comes."""
        try:
            record = self._recorder.records.get(timeout=_QUIET_SECONDS)
        except queue.Empty:
            self._finish_ended()
            return True
        if record is not None:
            self._take(record)
        return record is not None

    def _take(self, record: Record) -> None:
        if isinstance(record, Arrived):
            self._open[record.request_id] = RequestSpans(self._tracer, record)
        elif isinstance(record, Changed):
            if spans := self._open.get(record.request_id):
                spans.change(record)
        else:
            for request_id, start, tokens in record.work:
                if found := self._open.get(request_id):
                    found.work(record.step, record.started, record.ended, start, tokens)
            self._finish_ended()

    def _finish_ended(self) -> None:
        """The step that ended a request is told after its end."""
        for request_id in [number for number, spans in self._open.items() if spans.ended]:
            self._open.pop(request_id).finish()
