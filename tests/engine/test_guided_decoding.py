"""Guided sequences through the engine.

The model is random over SmolLM2's vocabulary: left alone it says anything, so what conforms does so because of the
guide.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import torch
import transformers

from backend.endings import FinishReason
from backend.engine import Engine
from backend.guide import Guide
from backend.logit_bias import LogitBias
from backend.request import Sequence
from backend.text.guided_decoding import GuideCompiler
from backend.text.token_bytes import TokenBytes
from tests.engine.engines import finish, narrow_engine, preempted_twice, request, small_engine

VOCAB, EOS = 49152, 2
PROMPT = tuple((7919 * n * n + 31 * n + 5) % VOCAB for n in range(19))
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["cat", "dog"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "kind", "tags"],
    "additionalProperties": False,
}
PATTERN = r"(yes|no), (19|20)[0-9]{2}-[a-f]{2,6}[.!]"
GRAMMAR = """# a sum of numbers in brackets
root ::= "(" number (" + " number){1,3} ")"
number ::= [1-9] [0-9]{0,3}
"""
SUM = r"\([1-9][0-9]{0,3}( \+ [1-9][0-9]{0,3}){1,3}\)"
OUTPUT = 120


@pytest.fixture(scope="module")
def directory(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("random")
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, bos_token_id=1, eos_token_id=EOS, initializer_range=0.3,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    shutil.copy(smollm2_dir / "tokenizer.json", path)
    return path


@pytest.fixture(scope="module")
def compiler(directory: Path) -> GuideCompiler:
    return GuideCompiler(directory, VOCAB, [EOS])


@pytest.fixture(scope="module")
def table(directory: Path) -> TokenBytes:
    return TokenBytes.from_directory(directory)


@pytest.fixture(scope="module")
def wide(directory: Path) -> Iterator[Engine]:
    engine = small_engine(directory, max_batch_size=12, batch_invariant=True)
    yield engine
    engine.close()


@pytest.fixture(scope="module", params=["swap", "recompute"])
def narrow(request: pytest.FixtureRequest, directory: Path) -> Iterator[Engine]:
    """One slot, which each urgent request takes."""
    engine = narrow_engine(directory, request.param)
    yield engine
    engine.close()


def asked(engine: Engine, guide: Guide | None, max_tokens: int = OUTPUT, **sampling: Any) -> Sequence:
    sampling = {"end_ids": frozenset({EOS}), **sampling}
    return engine.add(request(PROMPT, max_tokens, guide=guide, **sampling))


def said(sequence: Sequence, table: TokenBytes) -> str:
    return table.join(sequence.output).decode()


def conforms(kind: str, text: str) -> bool:
    if kind == "json_schema":
        return bool(jsonschema_rs.validator_for(SCHEMA).is_valid(json.loads(text)))
    return re.fullmatch(PATTERN if kind == "regex" else SUM, text) is not None


GUIDES = {"json_schema": json.dumps(SCHEMA), "regex": PATTERN, "ebnf_grammar": GRAMMAR}
SAMPLINGS = [{}, *({"temperature": 1.0, "seed": seed} for seed in range(4)), {"temperature": 1.5, "min_p": 0.1}]


@pytest.mark.parametrize("kind", GUIDES)
def test_an_answer_conforms_to_its_guide_at_any_temperature(
    wide: Engine, compiler: GuideCompiler, table: TokenBytes, kind: str
) -> None:
    guide = compiler.compile(kind, GUIDES[kind])
    sequences = [asked(wide, guide, **sampling) for sampling in SAMPLINGS]
    unguided = asked(wide, None, max_tokens=40, temperature=1.0, seed=1)
    finish(wide)
    texts = [said(sequence, table) for sequence in sequences]
    assert [sequence.finish_reason for sequence in sequences] == [FinishReason.EOS] * len(SAMPLINGS)
    assert [text for text in texts if not conforms(kind, text)] == []
    assert len(set(texts)) > 3
    with pytest.raises((ValueError, AssertionError)):
        assert conforms(kind, said(unguided, table))


def test_json_alone_is_an_object_as_far_as_it_goes(wide: Engine, compiler: GuideCompiler, table: TokenBytes) -> None:
    guide = compiler.compile("json", "")
    # Random text hardly ever closes a string: a bias on what closes.
    closing = [token for token, piece in enumerate(table.table) if piece in (b'"', b"}", b'"}')]
    bias = LogitBias.of((token, 12.0) for token in closing)
    sequences = [asked(wide, guide, temperature=1.0, seed=seed, logit_bias=bias) for seed in range(5)]
    finish(wide)
    whole = [said(s, table) for s in sequences if s.finish_reason is FinishReason.EOS]
    assert len(whole) >= 3
    assert all(isinstance(json.loads(text), dict) for text in whole)


@pytest.mark.parametrize("at", [0, 1, 6])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 3}], ids=["greedy", "seeded"])
def test_a_preempted_guided_sequence_says_what_it_would_have_said(
    narrow: Engine, compiler: GuideCompiler, at: int, sampling: dict
) -> None:
    guide = compiler.compile("json_schema", GUIDES["json_schema"])
    asking = {"level": 3, "repetition_penalty": 1.1, "bad_words": ((5,), (11, 12)), **sampling}
    undisturbed = asked(narrow, guide, **asking)
    finish(narrow)
    low = preempted_twice(narrow, asked(narrow, guide, **asking), at)
    assert low.num_preemptions == 2
    assert list(low.output) == list(undisturbed.output)
    assert low.finish_reason is FinishReason.EOS
    assert low.num_output > at + 4


def test_neighbours_without_a_guide_are_undisturbed_to_the_bit(wide: Engine, compiler: GuideCompiler) -> None:
    wishes = [{}, {"temperature": 1.0, "seed": 9}, {"repetition_penalty": 1.3}]

    def neighbours() -> list[Sequence]:
        return [asked(wide, None, 24, generation_logits=True, **wish) for wish in wishes]

    alone = neighbours()
    finish(wide)
    beside = neighbours()
    guided = [asked(wide, compiler.compile(kind, text), temperature=1.0, seed=2) for kind, text in GUIDES.items()]
    finish(wide)
    assert [list(s.output) for s in beside] == [list(s.output) for s in alone]
    for one, other in zip(alone, beside, strict=True):
        assert one.details is not None
        assert other.details is not None
        assert [detail.logits for detail in one.details] == [detail.logits for detail in other.details]
    assert all(sequence.finish_reason is FinishReason.EOS for sequence in guided)


def test_a_complete_guide_ends_with_stop_where_no_end_may_be_drawn(
    wide: Engine, compiler: GuideCompiler, table: TokenBytes
) -> None:
    """Without end ids, before min_tokens, with an end that is forbidden; log-probabilities are of the tokens alone."""
    guide = compiler.compile("regex", "[0-9]{3}|none")
    endless = asked(wide, guide, end_ids=frozenset(), log_probs=True)
    least = asked(wide, guide, min_tokens=50)
    forbidden = asked(wide, guide, bad_words=((EOS,),))
    own_end = asked(wide, guide, end_ids=frozenset({17}))
    finish(wide)
    for sequence in (endless, least, forbidden):
        assert re.fullmatch("[0-9]{3}|none", said(sequence, table))
        assert sequence.finish_reason is FinishReason.STOP
    assert endless.details is not None
    assert len(endless.details) == endless.num_output
    assert own_end.output[-1] == 17
    assert own_end.finish_reason is FinishReason.EOS
    assert re.fullmatch("[0-9]{3}|none", table.join(own_end.output[:-1]).decode())


def test_no_token_left_is_an_error_that_names_the_guide_and_ends_that_sequence_alone(
    wide: Engine, compiler: GuideCompiler, table: TokenBytes
) -> None:
    guide = compiler.compile("regex", "ab[xy]")
    xs = tuple((token,) for token, piece in enumerate(table.table) if piece in (b"x", b"y", b"bx", b"by"))
    stuck, fine = asked(wide, guide, bad_words=xs), asked(wide, guide)
    finish(wide)
    assert stuck.finish_reason is FinishReason.ERROR
    assert said(stuck, table) == "ab"
    assert re.match(r"guided_decoding_guide: after \d tokens none is left", stuck.problem)
    assert re.fullmatch("ab[xy]", said(fine, table))


def test_a_guide_that_has_no_end_ends_by_the_length(wide: Engine, compiler: GuideCompiler, table: TokenBytes) -> None:
    sequence = asked(wide, compiler.compile("regex", "[ab]*"), 30, end_ids=frozenset())
    finish(wide)
    assert (sequence.finish_reason, sequence.num_output) == (FinishReason.LENGTH, 30)
    assert re.fullmatch("[ab]+", said(sequence, table))


class Tiring:
    """A guide whose limits are exceeded at the third token."""

    def __init__(self, output: Any = ()) -> None:
        self.count = len(output)

    def start(self, output: Any) -> "Tiring":
        return Tiring(output)

    def allowed(self) -> bytes | None:
        return b"\xff" * (VOCAB // 8) if self.count < 2 else None

    def may_end(self) -> bool:
        return False

    def push(self, token: int) -> None:
        self.count += 1


def test_a_guide_beyond_its_limits_on_the_way_is_an_error_after_what_was_said(wide: Engine) -> None:
    sequence = asked(wide, Tiring())
    finish(wide)
    assert (sequence.finish_reason, sequence.num_output) == (FinishReason.ERROR, 2)
    assert sequence.problem == "guided_decoding_guide: too complex to be followed further after 2 tokens"
