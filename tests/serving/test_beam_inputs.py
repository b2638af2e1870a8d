"""What a request says of a search over beams."""

import pytest

from backend.beam_params import BeamParams
from backend.errors import InvalidRequest
from tests.serving.parsing import BEAMS, NO, YES, f32, parse, tensor


def test_a_search_takes_all_beams_back_unless_told_otherwise_and_draws_nothing() -> None:
    parsed = parse(**BEAMS, temperature=f32(1.0), runtime_top_k=tensor([1]), runtime_top_p=f32(0.0), streaming=NO)
    assert parsed.sampling.beams == BeamParams(width=3, num_returned=3)
    assert parsed.sampling.beams.length_penalty == 0.0
    assert parsed.sampling.greedy
    assert (parsed.num_sequences, parsed.pad_id) == (1, 7)
    asked = {"len_penalty": f32(2.0), "beam_search_diversity_rate": f32(0.5), "num_return_sequences": tensor([2])}
    beams = parse(**BEAMS, **asked, early_stopping=NO, pad_id=tensor([9])).sampling.beams
    assert beams == BeamParams(width=3, num_returned=2, length_penalty=2.0, early_stopping=0, diversity_rate=0.5)


def test_early_stopping_beyond_a_truth_value_comes_as_a_parameter() -> None:
    never = parse('{"early_stopping": 2}', **BEAMS).sampling.beams
    assert never is not None
    assert never.early_stopping == 2
    assert parse('{"early_stopping": ""}', **BEAMS).sampling.beams == BeamParams(width=3, num_returned=3)
    for custom, fields, message in (
        ('{"early_stopping": "soon"}', BEAMS, "early_stopping: 'soon' is not an integer"),
        ('{"early_stopping": -1}', BEAMS, "early_stopping: -1 is not an integer"),
        ('{"early_stopping": true}', BEAMS, "early_stopping: True is not an integer"),
        ('{"early_stopping": 1}', BEAMS | {"early_stopping": YES}, "early_stopping: is given as an input and as a"),
        ('{"early_stopping": 0}', {}, "early_stopping: 0 is not supported, allowed is 1: beam_width is 1"),
    ):
        with pytest.raises(InvalidRequest, match=f"^{message}"):
            parse(custom, **fields)
