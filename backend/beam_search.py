"""BeamSearch: which beams go on, which have ended, and when the search is over. Numbers in, decisions out.

At each step the candidates of all beams compete: each beam's likeliest next tokens, scored by the sum of its
log-probabilities. The best that do not end go on, ``width`` of them; those that end are kept as answers if they are
among the best ``width``, and of the answers of all steps the best ``width``. This is the search of transformers'
``generate`` (its ``num_beams``, ``length_penalty``, ``early_stopping``), ended as TensorRT-LLM names it (see
``BeamParams``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from backend.beam_params import BeamParams
from backend.endings import BeamWatch, FinishReason
from backend.sampling_params import SamplingParams


class Beam(NamedTuple):
    """An output under way. score: what it is ranked by: the sum of ``log_probs``, and what diversity has added."""

    output: list[int]
    log_probs: list[float]
    score: float
    watch: BeamWatch | None


class Answer(NamedTuple):
    """An output that has ended. score: by which answers are ranked, after the length penalty."""

    output: list[int]
    log_probs: list[float]
    score: float
    reason: FinishReason

    @property
    def cumulative(self) -> float:
        """Log-probability of the whole output."""
        return math.fsum(self.log_probs)


class Step(NamedTuple):
    """How one of the beams came about. parent: its place among the beams before. token: that it added."""

    parent: int
    token: int


class _Candidate(NamedTuple):
    score: float
    parent: int
    token: int
    log_prob: float


class BeamSearch:
    """One search. beams: under way, best first; at the beginning one, with nothing said yet.

    There are ``width`` of them from the first step on; fewer, for good, where candidates end or are forbidden in such
    numbers that fewer are left. ended: by itself. problem: why it cannot go on, for the client.
    """

    def __init__(self, sampling: SamplingParams, watch: BeamWatch | None = None) -> None:
        assert sampling.beams is not None
        self._sampling = sampling
        self._params: BeamParams = sampling.beams
        self.beams = [Beam([], [], 0.0, watch)]
        self.ended = False
        self.problem = ""
        self._answers: list[Answer] = []

    @property
    def started(self) -> bool:
        """Whether a step has been taken."""
        return bool(self.ended or self.beams[0].output)

    def advance(self, found: Sequence[Sequence[tuple[int, float]]]) -> list[Step]:
        """Take a step. found: for each beam, in order, (token, log-probability) of its likeliest.

        Returns how each of the new ``beams`` came about, in their order; nothing if the search has ended.
        """
        most = len(self.beams) if self.started else self._params.width
        length = len(self.beams[0].output) + 1
        best = self._best(found)
        if not best:
            self.problem = f"beam_width: after {length - 1} tokens none is left that is not forbidden"
        going: list[tuple[Beam, Step]] = []
        for rank, candidate in enumerate(best):
            beam = self._extended(candidate)
            reason = self._reason(beam, candidate.token)
            if reason is None and len(going) < most:
                going.append((beam, Step(candidate.parent, candidate.token)))
            elif reason is not None and rank < self._params.width:
                self._keep(beam, reason)
        self.beams = [beam for beam, _ in going] or self.beams
        self.ended = not going or self._over(length)
        return [] if self.ended else [step for _, step in going]

    def answers(self, reason: FinishReason) -> list[Answer]:
        """The best, as many as were asked for. reason: why beams end that are still under way, if any are to."""
        found = self._answers
        if not self.ended and self.started:
            found = found + [self._answer(beam, reason) for beam in self.beams]
        return sorted(found, key=_by_score)[: self._params.num_returned]

    def _best(self, found: Sequence[Sequence[tuple[int, float]]]) -> list[_Candidate]:
        rate = self._params.diversity_rate
        candidates = [
            _Candidate(beam.score + rate * place + log_prob, place, token, log_prob)
            for place, (beam, likeliest) in enumerate(zip(self.beams, found, strict=True))
            for token, log_prob in likeliest
            if log_prob > -math.inf
        ]
        return sorted(candidates, key=_by_score)[: self._sampling.num_top]

    def _extended(self, candidate: _Candidate) -> Beam:
        beam = self.beams[candidate.parent]
        watch = beam.watch.fork() if beam.watch is not None else None
        return Beam([*beam.output, candidate.token], [*beam.log_probs, candidate.log_prob], candidate.score, watch)

    def _reason(self, beam: Beam, token: int) -> FinishReason | None:
        """Why a beam ends with its new token, if it does; in the order in which one of an ordinary sequence counts."""
        stopped = beam.watch is not None and beam.watch.push(token)
        if token in self._sampling.end_ids:
            return FinishReason.EOS
        if stopped or self._sampling.stops(beam.output, len(beam.output)):
            return FinishReason.STOP
        return FinishReason.LENGTH if len(beam.output) >= self._sampling.max_tokens else None

    def _keep(self, beam: Beam, reason: FinishReason) -> None:
        self._answers = sorted([*self._answers, self._answer(beam, reason)], key=_by_score)[: self._params.width]

    def _answer(self, beam: Beam, reason: FinishReason) -> Answer:
        return Answer(beam.output, beam.log_probs, self._penalised(beam.score, len(beam.output)), reason)

    def _penalised(self, score: float, length: int) -> float:
        return float(score / length**self._params.length_penalty)

    def _over(self, length: int) -> bool:
        """Whether enough have ended, after steps that brought beams of so many tokens."""
        if len(self._answers) < self._params.width:
            return False
        if self._params.early_stopping == 1:
            return True
        # A positive penalty favours the long: what goes on may yet win by its length.
        favours_length = self._params.early_stopping != 0 and self._params.length_penalty > 0
        reached = self._sampling.max_tokens if favours_length else length
        return self._penalised(self.beams[0].score, reached) <= self._answers[-1].score


def _by_score(each: _Candidate | Answer) -> float:
    return -each.score
