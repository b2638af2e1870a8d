"""The rules of the search, on candidates made by hand."""

import pytest

from backend.beam_params import BeamParams
from backend.beam_search import BeamSearch, Step
from backend.endings import FinishReason
from backend.sampling_params import SamplingParams

END = 9


def searching(max_tokens: int = 20, **beams: float) -> BeamSearch:
    params = BeamParams(**{"width": 2, "num_returned": 2, **beams})  # type: ignore[arg-type]
    return BeamSearch(SamplingParams(max_tokens=max_tokens, end_ids=frozenset({END}), beams=params))


def test_the_best_sums_go_on_whoever_they_come_from() -> None:
    search = searching()
    assert search.advance([[(1, -1.0), (2, -2.0), (3, -3.0)]]) == [Step(0, 1), Step(0, 2)]
    # 1 then 4: -1.0 - 3.0; 2 then 5: -2.0 - 0.5; 2 then 6: -2.0 - 1.5.
    steps = search.advance([[(4, -3.0), (7, -4.0)], [(5, -0.5), (6, -1.5)]])
    assert steps == [Step(1, 5), Step(1, 6)]
    assert [beam.output for beam in search.beams] == [[2, 5], [2, 6]]
    assert [beam.score for beam in search.beams] == [-2.5, -3.5]


def test_diversity_favours_the_beams_behind_by_their_rank_and_leaves_log_probabilities_alone() -> None:
    search = searching(diversity_rate=2.0)
    search.advance([[(1, -1.0), (2, -2.0)]])
    # Of the first 1.0 + 1.0 and 1.0 + 1.5; of the second 2.0 + 2.0 - 2.0 and 2.0 + 2.1 - 2.0.
    steps = search.advance([[(3, -1.0), (4, -1.5)], [(5, -2.0), (6, -2.1)]])
    assert steps == [Step(0, 3), Step(1, 5)]
    assert [beam.log_probs for beam in search.beams] == [[-1.0, -1.0], [-2.0, -2.0]]
    assert [beam.score for beam in search.beams] == [-2.0, -2.0]


def test_an_end_counts_only_among_the_best_and_does_not_take_a_beams_place() -> None:
    search = searching(early_stopping=2)
    search.advance([[(1, -1.0), (END, -1.5), (2, -2.0), (3, -3.0)]])
    assert [beam.output for beam in search.beams] == [[1], [2]]
    search.advance([[(4, -0.1), (5, -0.2)], [(END, -0.3), (6, -4.0)]])
    ended = search.answers(FinishReason.CANCELLED)
    assert [(answer.output, answer.reason) for answer in ended] == [
        ([1, 4], FinishReason.CANCELLED),
        ([1, 5], FinishReason.CANCELLED),
    ], "the second end was third at its step, so it is none; -1.1 and -1.2 are better than the first end's -1.5"


@pytest.mark.parametrize(
    ("early", "penalty", "ended"),
    [(1, 0.0, True), (0, 0.0, True), (2, 0.0, True), (0, 1.0, False), (2, 1.0, False), (0, -1.0, True), (1, 1.0, True)],
)
def test_the_search_is_over_by_the_rule_of_early_stopping(early: int, penalty: float, ended: bool) -> None:
    """Two have ended, the worse with -2.0 after two tokens; the best under way has -2.3 after two of twenty."""
    search = searching(early_stopping=early, length_penalty=penalty)
    search.advance([[(1, -1.0), (END, -1.2), (2, -1.9), (3, -5.0)]])
    search.advance([[(END, -1.0), (4, -1.3)], [(5, -2.0), (6, -3.0)]])
    # By length 1.0: -1.2 and -1.0 have ended; under way -1.15 now, -0.115 at twenty tokens.
    # By -1.0: -1.2 and -4.0; under way -4.6.
    assert search.ended == ended


def test_where_fewer_go_on_the_search_stays_narrower_and_without_any_it_says_why() -> None:
    search = searching()
    assert search.advance([[(1, -1.0), (2, float("-inf")), (3, float("nan"))]]) == [Step(0, 1)]
    assert search.advance([[(4, -1.0), (5, -2.0)]]) == [Step(0, 4)]
    assert search.advance([[(6, float("-inf"))]]) == []
    assert search.ended
    assert search.answers(FinishReason.LENGTH) == []
    assert search.problem == "beam_width: after 2 tokens none is left that is not forbidden"


def test_the_length_ends_all_that_are_among_the_best() -> None:
    search = searching(max_tokens=2)
    search.advance([[(1, -1.0), (2, -2.0)]])
    assert search.advance([[(3, -1.0), (4, -1.2)], [(5, -0.1), (6, -0.2)]]) == []
    found = search.answers(FinishReason.CANCELLED)
    assert [(answer.output, answer.reason) for answer in found] == [
        ([1, 3], FinishReason.LENGTH),
        ([2, 5], FinishReason.LENGTH),
    ]
