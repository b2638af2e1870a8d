"""Building an engine for a GPU, on the stand-in: what the pool gets, what warms up, and what is said when it fails."""

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from backend.config import EngineConfig
from backend.engine_builder import assembled
from backend.errors import ConfigError
from backend.executor.cpu import CpuExecutor
from backend.executor.device import HostDevice
from backend.gpu_parts import gpu_parts, out_of_memory
from backend.kv.storage import allocate
from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.kv_layout import layout_of
from backend.model.weights import expected_shapes, load_weights
from backend.request import Request, Sequence
from backend.scheduler.plan import BlockCopies, Chunk, StepPlan
from kernels.table import reference_operations
from tests.engine.engines import request
from tests.executor.triton.toys import run

CONFIG = """{"architectures": ["LlamaForCausalLM"], "vocab_size": 101, "hidden_size": 32, "intermediate_size": 48,
"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
"max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true,
"eos_token_id": 2, "torch_dtype": "float32"}"""
BYTES_PER_BLOCK = 1 * 2 * 2 * 8 * 16 * 4


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    (directory / "config.json").write_text(CONFIG)
    torch.manual_seed(1)
    shapes = expected_shapes(ModelConfig.from_directory(directory))
    save_file(
        {name: torch.randn(shape) * shape[-1] ** -0.5 for name, shape in shapes.items()},
        directory / "model.safetensors",
    )
    return directory


def config(model_dir: Path, **knobs: str) -> EngineConfig:
    small = {"max_batch_size": "2", "max_num_tokens": "8", "tokens_per_block": "8"}
    return EngineConfig.from_parameters({"model_dir": str(model_dir), **small, **knobs})


def test_an_engine_built_for_a_gpu_gives_the_references_tokens(model_dir: Path) -> None:
    knobs = config(model_dir, kv_cache_host_memory_bytes="100000")
    model = ModelConfig.from_directory(model_dir)
    parts = gpu_parts(knobs, model, HostDevice(), progress=False)
    loaded = assembled(knobs, model, parts)
    # Two slots of 64 tokens are all that can ever be used, however much is free.
    assert (loaded.pool_tokens, loaded.max_seq_len) == (128, 64)
    assert (parts.num_host_slots, parts.ahead) == (100000 // BYTES_PER_BLOCK, True)
    prompt = (5, 90, 17, 33, 64, 2, 71, 8, 9)
    requests = [request(prompt, 3), request(prompt[:3], 3, temperature=0.9, seed=8)]
    assert run(loaded.engine, requests) == [reference_tokens(model_dir, one) for one in requests]


def reference_tokens(model_dir: Path, asked: Request) -> list[int]:
    """The CPU executor on the reference operations, one sequence at a time, the whole prompt in one step."""
    model = ModelConfig.from_directory(model_dir)
    decoder = Decoder(model, load_weights(model_dir, model, progress=False), reference_operations())
    layout = layout_of(model, config(model_dir).tokens_per_block)
    pool = allocate(layout, 9)
    executor = CpuExecutor(
        partial(decoder.forward, pool=pool), pool, layout.block_size, torch.empty((0, *layout.block_shape))
    )
    sequence = Sequence(asked)
    sequence.blocks = list(range(1, 9))
    for step in range(asked.sampling.max_tokens):
        start = sequence.num_computed
        sequence.num_computed = sequence.num_tokens
        chunk = Chunk(sequence, start, sequence.num_tokens - start, True)
        (token,) = executor.launch(StepPlan(step, [], [chunk], BlockCopies([], [], [], []))).collect()
        sequence.tokens.append(token)
    executor.close()
    return list(sequence.output)


def test_the_pool_takes_its_share_of_what_weights_and_workspace_leave(model_dir: Path) -> None:
    """Two graphs are counted with 32 MiB each; of the ten blocks' bytes beyond them the pool takes nine tenths."""
    model = ModelConfig.from_directory(model_dir)
    device = HostDevice(free_bytes=2 * 2**25 + 10 * BYTES_PER_BLOCK)
    assert gpu_parts(config(model_dir), model, device, progress=False).num_blocks == 1 + 9
    half = config(model_dir, kv_cache_free_gpu_mem_fraction="0.5")
    assert gpu_parts(half, model, device, progress=False).num_blocks == 1 + 5


def test_too_little_memory_names_the_share_and_the_knob(model_dir: Path) -> None:
    model = ModelConfig.from_directory(model_dir)
    with pytest.raises(
        ConfigError, match=r"the pool's share \(0.9 of .* GiB, kv_cache_free_gpu_mem_fraction\) holds 0"
    ):
        gpu_parts(config(model_dir), model, HostDevice(free_bytes=2**20), progress=False)


def test_out_of_memory_becomes_one_line_that_says_what_to_lower() -> None:
    with (
        pytest.raises(ConfigError) as caught,
        out_of_memory("a step of max_num_tokens", "lower max_num_tokens or max_batch_size"),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nGPU 0 has ...")
    assert str(caught.value) == (
        "too little GPU memory for a step of max_num_tokens: lower max_num_tokens or max_batch_size "
        "(CUDA out of memory. Tried to allocate 2 GiB.)"
    )
