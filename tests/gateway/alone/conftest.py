"""The gateway alone: a service that says what a test wants said, and one gateway before it. No model runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.alone.asking import ALL_INPUTS, ALL_OUTPUTS, KEY, MOST_BYTES, MOST_REQUESTS
from tests.gateway.fake_triton import FakeTriton
from tests.gateway.gateway_process import Gateway, running_gateway


@pytest.fixture(scope="package")
def triton(smollm2_dir: Path) -> Iterator[FakeTriton]:
    fake = FakeTriton(str(smollm2_dir), ALL_INPUTS, ALL_OUTPUTS)
    server = fake.start()
    yield fake
    server.stop(0)


@pytest.fixture(scope="package")
def gateway(triton: FakeTriton) -> Iterator[Gateway]:
    limits = ("--max-body-bytes", str(MOST_BYTES), "--max-requests", str(MOST_REQUESTS))
    with running_gateway(triton.url, *limits, key=KEY) as running:
        yield running
