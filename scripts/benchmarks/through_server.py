"""The running server's ensemble over gRPC, each request streaming, all over one connection."""

from __future__ import annotations

import time
from pathlib import Path

from generate_stream import Client, ServerError
from tokenizers import Tokenizer

from backend.text.tokenizer_file import tokenizer_json

from .timing import Progress, RequestTimes


class ThroughServer:
    """Sends workloads as text, what the ids decode to: the same tokens again if they are words of this tokenizer."""

    def __init__(self, url: str) -> None:
        self._client = Client(url)
        self._client.connect()
        directory = Path(self._client.parameter("preprocessing", "tokenizer_dir"))
        self._tokenizer = Tokenizer.from_str(tokenizer_json(directory))

    def run(self, requests: list[tuple[list[int], int]], progress: Progress) -> tuple[list[RequestTimes], int]:
        """All requests handed over at once; returns when the last has ended. Raises ServerError, refused ones too."""
        texts = [self._tokenizer.decode(ids, skip_special_tokens=False) for ids, _ in requests]
        inputs = [
            {
                "text_input": text.encode(),
                "max_tokens": length,
                "stream": True,
                "exclude_input_in_output": True,
                "ignore_eos": True,
            }
            for text, (_, length) in zip(texts, requests, strict=True)
        ]
        times = [RequestTimes(sent=time.perf_counter()) for _ in inputs]
        for arrival in self._client.generate_together(inputs):
            if arrival.error:
                raise ServerError(arrival.error)
            if arrival.piece.tokens:
                times[arrival.number].arrivals.append((time.perf_counter(), arrival.piece.tokens))
                progress.add(arrival.piece.tokens)
        return times, sum(len(self._tokenizer.encode(text).ids) for text in texts)
