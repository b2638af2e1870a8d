"""What is done to a row of logits, against transformers' processors and hand counts."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import (
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from backend.logit_bias import LogitBias
from backend.request import Sequence
from backend.sampling.row_state import RowState
from backend.sampling.row_states import RowStates
from backend.sampling.token_details import detail_of
from backend.sampling_params import SamplingParams
from tests.engine.engines import request

VOCAB = 50


def sequence(tokens: list[int], num_prompt: int, **sampling: object) -> Sequence:
    made = Sequence(request(tuple(tokens[:num_prompt]), 40, **sampling))
    made.tokens = list(tokens)
    return made


def processed(tokens: list[int], num_prompt: int, **sampling: object) -> tuple[torch.Tensor, torch.Tensor]:
    """A row of logits before and after."""
    row = torch.randn(VOCAB, generator=torch.Generator().manual_seed(len(tokens))) * 3
    after = row.clone()
    RowState(sequence(tokens, num_prompt, **sampling), len(tokens)).apply(after, len(tokens))
    return row, after


TOKENS = [3, 7, 3, 9, 11, 7, 7, 20]


@pytest.mark.parametrize("penalty", [1.3, 0.6, 5.0])
def test_the_repetition_penalty_is_transformers_over_prompt_and_output(penalty: float) -> None:
    row, after = processed(TOKENS, 4, repetition_penalty=penalty)
    expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([TOKENS]), row[None].clone())[0]
    torch.testing.assert_close(after, expected)
    assert not torch.equal(after, row)


def test_presence_and_frequency_count_the_output_alone() -> None:
    """Output 11, 7, 7, 20 after the prompt 3, 7, 3, 9."""
    row, after = processed(TOKENS, 4, presence_penalty=0.5, frequency_penalty=0.25)
    changes = {11: 0.75, 7: 1.0, 20: 0.75}
    expected = row.clone()
    for token, change in changes.items():
        expected[token] -= change
    torch.testing.assert_close(after, expected)


def test_penalties_need_no_recount_as_tokens_come() -> None:
    """A state that was told its tokens one by one, and one made from all of them, do the same."""
    rng, options = random.Random(1), {"repetition_penalty": 1.4, "presence_penalty": 0.3, "frequency_penalty": 0.2}
    tokens = [rng.randrange(VOCAB) for _ in range(5)]
    grown = RowState(sequence(tokens, 3, **options), 5)
    for position in range(5, 200):
        row = torch.randn(VOCAB)
        by_growth, by_making = row.clone(), row.clone()
        grown.apply(by_growth, position)
        RowState(sequence(tokens, 3, **options), position).apply(by_making, position)
        torch.testing.assert_close(by_growth, by_making)
        tokens.append(rng.randrange(VOCAB))
        grown.push(tokens[-1])


def test_bias_is_added_to_its_tokens_as_transformers_does() -> None:
    row, after = processed(TOKENS, 4, logit_bias=LogitBias.of([(5, 2.5), (49, -7.0), (5, 0.5)]))
    expected = SequenceBiasLogitsProcessor([[[5], 3.0], [[49], -7.0]])(torch.tensor([TOKENS]), row[None].clone())[0]
    torch.testing.assert_close(after, expected)


words = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=6)


@given(bad=words, tokens=st.lists(st.integers(0, 5), min_size=1, max_size=9))
@settings(max_examples=150, deadline=None)
def test_bad_words_forbid_what_transformers_forbids(bad: list[list[int]], tokens: list[int]) -> None:
    row, after = processed(tokens, 1, bad_words=tuple(map(tuple, bad)))
    ids = torch.tensor([tokens])
    expected = NoBadWordsLogitsProcessor([list(word) for word in dict.fromkeys(map(tuple, bad))])(ids, row[None])[0]
    assert after.isneginf().tolist() == expected.isneginf().tolist()
    assert torch.equal(after[~after.isneginf()], row[~after.isneginf()])


@pytest.mark.parametrize("output", [0, 3, 4, 5])
def test_the_least_length_forbids_all_ends_before_it(output: int) -> None:
    tokens = list(range(10, 12 + output))
    ends = {"end_ids": frozenset({1, 2}), "stop_ids": frozenset({6}), "stop_sequences": ((8,), (9, 9))}
    row, after = processed(tokens, 2, min_tokens=4, **ends)
    ids = torch.tensor([tokens])
    expected = MinNewTokensLengthLogitsProcessor(2, 4, [1, 2, 6, 8], device="cpu")(ids, row[None].clone())[0]
    assert torch.equal(after, expected)
    assert bool(after[1].isneginf()) == (output < 4)


def test_the_order_is_penalties_then_bias_then_what_is_forbidden() -> None:
    row, after = processed(
        [4, 5], 1, repetition_penalty=2.0, logit_bias=LogitBias.of([(4, 1.0), (6, 50.0)]), bad_words=((6,),)
    )
    assert after[4] == pytest.approx(float(row[4]) * (0.5 if row[4] > 0 else 2.0) + 1.0)
    assert after[6] == -torch.inf


def test_a_state_is_kept_while_it_stands_at_the_position_and_made_anew_otherwise() -> None:
    states, one = RowStates(), sequence(TOKENS, 4, repetition_penalty=2.0)
    first = states.get(one, 8)
    assert states.get(one, 9) is first  # the last token is not known to the sequence yet
    one.tokens += [1, 2]
    assert states.get(one, 9) is not first
    assert states.num_made == 2
    with pytest.raises(ValueError, match="token 10 of .* is not known, needed are 30"):
        states.get(one, 30)


def test_states_that_are_not_asked_for_go() -> None:
    states = RowStates()
    many = [sequence(TOKENS, 4, repetition_penalty=2.0) for _ in range(70)]
    for one in many:
        states.get(one, 8)
    states.forget(1)
    assert states.num_made == 70
    states.get(many[0], 8)  # this one went
    states.get(many[69], 8 + 1)  # this one is still there
    assert states.num_made == 71


def test_details_are_of_the_raw_logits() -> None:
    row = torch.randn(VOCAB) * 4
    detail = detail_of(row, 9, SamplingParams(max_tokens=1, log_probs=True, top_log_probs=3, generation_logits=True))
    expected = torch.log_softmax(row, 0)
    assert detail.log_prob == pytest.approx(float(expected[9]))
    assert [token for token, _ in detail.top] == expected.topk(3).indices.tolist()
    assert torch.equal(torch.frombuffer(bytearray(detail.logits or b""), dtype=torch.float32), row)
    assert detail_of(row, 9, SamplingParams(max_tokens=1, log_probs=True)) == (detail.log_prob, (), None)
