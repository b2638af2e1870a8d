"""One real server for all tests of the ensemble."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.ensemble.asking import MAX_SEQ_LEN, POOL_TOKENS
from tests.server_fixture import RunningServer
from tests.step_trace import trace_file_fixture

trace_file = trace_file_fixture("package")


@pytest.fixture(scope="package")
def server(smollm2_dir: Path, trace_file: Path) -> Iterator[RunningServer]:
    yield from RunningServer.fixture(
        smollm2_dir,
        max_batch_size=32,
        kv_cache_tokens=POOL_TOKENS,
        max_seq_len=MAX_SEQ_LEN,
        weight_precision="float32",
        parameter={"step_trace_file": trace_file},
    )
