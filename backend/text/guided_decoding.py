"""Guides by llguidance: JSON, JSON schemas, regular expressions and grammars over the tokens of one model.

Compiling takes milliseconds, or as long as the limits below let it; following a guide takes a fraction of one a token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backend.errors import ConfigError, InvalidRequest
from backend.text.guide_size import MAX_ELEMENTS, elements
from backend.text.tokenizer_file import tokenizer_json

if TYPE_CHECKING:
    from llguidance import LLMatcher

GUIDE_TYPES = ("json", "json_schema", "regex", "ebnf_grammar")
_FIELD = "guided_decoding_guide"
_WHITESPACE = r"[ \t\r\n]{1,16}"
"""Between the tokens of JSON. Bounded, as small models like to go on with white space for ever."""

_MAX_GRAMMAR_SIZE = 50_000
_COMPILE_FUEL = 1_000_000
_STEP_FUEL = 100_000
_STEP_ITEMS = 10_000
_LEXER_STATES = 50_000
_MOST_SHOWN = 200


class NoGuidesError(Exception):
    """This model cannot be guided; says why in one line."""


class GuideCompiler:
    """Of one model. Thread-safe; llguidance lets other threads run while it compiles."""

    def __init__(self, directory: Path, vocab_size: int, eos_ids: Sequence[int]) -> None:
        """Takes the directory's tokenizer apart, which takes a second or several. Raises NoGuidesError."""
        try:
            import llguidance
        except ImportError as error:
            raise NoGuidesError(f"the package llguidance is not there ({error})") from error
        self._library = llguidance
        try:
            self._tokenizer = llguidance.LLTokenizer(
                tokenizer_json(directory), n_vocab=vocab_size, eos_token=list(eos_ids) or None
            )
        except (ValueError, ConfigError) as error:
            raise NoGuidesError(f"the tokenizer is of an unknown kind ({_first_line(str(error))})") from error
        self._limits = llguidance.LLParserLimits(
            max_grammar_size=_MAX_GRAMMAR_SIZE,
            initial_lexer_fuel=_COMPILE_FUEL,
            step_lexer_fuel=_STEP_FUEL,
            step_max_items=_STEP_ITEMS,
            max_lexer_states=_LEXER_STATES,
            precompute_large_lexemes=False,
            verbose_errors=False,
        )
        self._grammars: Mapping[str, Callable[[str], str]] = {
            "json": lambda _: self._of_schema('{"type": "object"}'),
            "json_schema": self._of_schema,
            "regex": llguidance.LLMatcher.grammar_from_regex,
            "ebnf_grammar": _of_ebnf,
        }

    def compile(self, kind: str, text: str) -> CompiledGuide:
        """kind: one of GUIDE_TYPES. Raises InvalidRequest with what the library says of it, or that nothing fits it."""
        # The library writes these out; those of grammars, and of patterns in schemas, it does not.
        if kind == "regex" and (size := elements(text)) > MAX_ELEMENTS:
            problem = f"{size} elements where its repetitions are written out, at most {MAX_ELEMENTS} are allowed"
            raise _invalid(kind, problem)
        matcher = self._library.LLMatcher(self._tokenizer, self._grammars[kind](text), limits=self._limits, log_level=0)
        if not matcher.is_error():
            trial = matcher.deep_copy()  # the first mask shows what compiling leaves for later
            trial.compute_bitmask()
            if trial.is_error() and "NoExtension" in trial.get_error():
                raise InvalidRequest(_FIELD, "no text satisfies it")
            if not trial.is_error():
                return CompiledGuide(matcher, self._tokenizer.eos_tokens)
            matcher = trial
        raise _invalid(kind, matcher.get_error())

    def _of_schema(self, schema: str) -> str:
        try:
            return self._library.LLMatcher.grammar_from_json_schema(
                schema, defaults={"whitespace_pattern": _WHITESPACE}
            )
        except ValueError as error:
            raise _invalid("json_schema", str(error)) from error


class CompiledGuide:
    """A ``Guide``: the matcher at its beginning, of which each output gets a copy."""

    def __init__(self, matcher: LLMatcher, eos_ids: Sequence[int]) -> None:
        """eos_ids: ends that the library allows by itself."""
        self._matcher = matcher
        self._eos_ids = eos_ids

    def start(self, output: Sequence[int]) -> MatcherState:
        """Takes a time that grows with the output."""
        state = MatcherState(self._matcher.deep_copy(), self._eos_ids)
        for token in output:
            state.push(token)
        return state


class MatcherState:
    """A ``GuideState``. A token that does not fit, which no draw brings, counts as a limit exceeded."""

    def __init__(self, matcher: LLMatcher, eos_ids: Sequence[int]) -> None:
        self._matcher = matcher
        self._eos_ids = eos_ids

    def allowed(self) -> bytes | None:
        """None once the matcher has failed, and it stays so."""
        mask = bytearray(self._matcher.compute_bitmask())
        for token in self._eos_ids:
            mask[token >> 3] &= ~(1 << (token & 7))
        return None if self._matcher.is_error() else bytes(mask)

    def may_end(self) -> bool:
        """As the grammar stands now."""
        return self._matcher.is_accepting()

    def push(self, token: int) -> None:
        """Advance by one token."""
        self._matcher.consume_token(token)


def _of_ebnf(text: str) -> str:
    """A grammar as llama.cpp writes it. The library's own choice among notations is left out: it can take minutes."""
    from llguidance import LLMatcher
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return LLMatcher.grammar_from_lark(gbnf_to_lark(text))
    except RecursionError as error:
        raise _invalid("ebnf_grammar", "nested too deeply") from error
    except Exception as error:  # the library raises plain exceptions here
        raise _invalid("ebnf_grammar", str(error)) from error


def _invalid(kind: str, problem: str) -> InvalidRequest:
    return InvalidRequest(_FIELD, f"not a valid guide of type {kind}: {_first_line(problem)}")


def _first_line(text: str) -> str:
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= _MOST_SHOWN else line[:_MOST_SHOWN] + "..."
