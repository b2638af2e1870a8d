"""The running server's ensemble over gRPC streaming, one stream per request."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from generate_stream import Client
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
        """All requests handed over at once; returns when the last stream has ended."""
        texts = [self._tokenizer.decode(ids, skip_special_tokens=False) for ids, _ in requests]
        with ThreadPoolExecutor(len(requests)) as pool:
            times = list(pool.map(lambda text, asked: self._one(text, asked[1], progress), texts, requests))
        return times, sum(len(self._tokenizer.encode(text).ids) for text in texts)

    def _one(self, text: str, length: int, progress: Progress) -> RequestTimes:
        inputs = {
            "text_input": text.encode(),
            "max_tokens": length,
            "stream": True,
            "exclude_input_in_output": True,
            "ignore_eos": True,
        }
        times = RequestTimes(sent=time.perf_counter())
        for piece in self._client.generate(inputs):
            if piece.tokens:
                times.arrivals.append((time.perf_counter(), piece.tokens))
                progress.add(piece.tokens)
        return times
