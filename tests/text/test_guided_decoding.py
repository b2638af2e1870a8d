"""Guides over real tokenizers: what may come next, against an independent matcher of regular expressions."""

from collections.abc import Callable
from pathlib import Path

import pytest
import regex

from backend.errors import InvalidRequest
from backend.text.guided_decoding import GuideCompiler, NoGuidesError
from backend.text.token_bytes import TokenBytes

PATTERNS = {
    "[0-9]{2,3}": b"42",
    "(yes|no) ?[a-c]+": b"no a",
    "caf\u00e9|\u65e5\u672c?": "\u65e5".encode(),
}


@pytest.fixture(scope="module", params=["smollm2", pytest.param("gemma3", marks=pytest.mark.nightly)])
def model(request: pytest.FixtureRequest) -> tuple[GuideCompiler, TokenBytes, list[int]]:
    """Byte-level BPE and sentencepiece, with a vocabulary padded beyond the tokenizer's."""
    directory = request.getfixturevalue(f"{request.param}_dir")
    table, ends = TokenBytes.from_directory(directory), [2] if request.param == "smollm2" else [1, 106]
    return GuideCompiler(directory, len(table.table) + 70, ends), table, ends


def bits(mask: bytes | None) -> set[int]:
    assert mask is not None
    return {8 * n + bit for n, byte in enumerate(mask) if byte for bit in range(8) if byte >> bit & 1}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_just_the_tokens_that_lead_towards_a_match_may_come(model: tuple, pattern: str) -> None:
    compiler, table, ends = model
    matcher = regex.compile(as_bytes(pattern))
    done, output = b"", []
    for step in (bytes([byte]) for byte in PATTERNS[pattern]):
        state = compiler.compile("regex", pattern).start(output)
        expected = {
            token
            for token, piece in enumerate(table.table)
            if piece and token not in ends and matcher.fullmatch(done + piece, partial=True)
        }
        assert bits(state.allowed()) == expected
        assert state.may_end() == bool(matcher.fullmatch(done))
        output.append(next(token for token in expected if table.table[token] == step))
        done += step
    assert compiler.compile("regex", pattern).start(output).may_end() == bool(matcher.fullmatch(done))


def as_bytes(pattern: str) -> bytes:
    """The same over bytes: a character before ``?`` is several of them."""
    return pattern.replace("\u672c", "(?:\u672c)").encode()


BAD = {
    "a type that is none": ("json_schema", '{"type": "objec"}', "Invalid type: objec"),
    "no JSON": ("json_schema", '{"type":', "EOF while parsing"),
    "no schema": ("json_schema", "[1]", "Expecting object schema"),
    "an unserved key": ("json_schema", '{"not": {"type": "string"}}', "Unimplemented keys"),
    "a file": ("json_schema", '{"$ref": "file:///etc/passwd"}', "is not present"),
    "endless recursion": ("json_schema", '{"$ref": "#"}', "no text satisfies it"),
    "deep": ("json_schema", '{"items":' * 5000 + "{}" + "}" * 5000, "recursion limit"),
    "a group left open": ("regex", "(a", "invalid regex"),
    "look-ahead": ("regex", "(?=a)b", "invalid regex"),
    "nothing matches": ("regex", r"[^\s\S]", "no text satisfies it"),
    "nested repetitions": ("regex", "(a{1000}){10000}", "10000000 elements where its .* at most 50000 are allowed"),
    "no such rule": ("ebnf_grammar", "root ::= foo", "Rule 'foo' not found"),
    "no root": ("ebnf_grammar", 'start ::= "a"', "No 'root' rule found"),
    "a literal left open": ("ebnf_grammar", 'root ::= "a', "Unexpected end of input"),
    "deep brackets": ("ebnf_grammar", "root ::= " + "(" * 4000 + '"a"' + ")" * 4000, "nested too deeply"),
    "too large": (
        "json_schema",
        '{"allOf": [' + ",".join(f'{{"properties": {{"k{n}": {{"type": "string"}}}}}}' for n in range(500)) + "]}",
        "too large",
    ),
}


@pytest.fixture(scope="module")
def compiler(smollm2_dir: Path) -> GuideCompiler:
    return GuideCompiler(smollm2_dir, 49152, [2])


@pytest.mark.parametrize("name", BAD)
def test_a_bad_guide_is_refused_in_one_line_with_what_is_wrong(compiler: GuideCompiler, name: str) -> None:
    kind, text, problem = BAD[name]
    with pytest.raises(InvalidRequest, match=f"^guided_decoding_guide: .*{problem}") as refusal:
        compiler.compile(kind, text)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300


def test_a_tokenizer_of_an_unknown_kind_means_no_guides(tmp_path: Path) -> None:
    with pytest.raises(NoGuidesError, match="no tokenizer.json"):
        GuideCompiler(tmp_path, 100, [2])
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(NoGuidesError, match="of an unknown kind"):
        GuideCompiler(tmp_path, 100, [2])


@pytest.fixture(scope="module")
def follow(compiler: GuideCompiler, smollm2_dir: Path) -> Callable[[str, str], bool]:
    table = TokenBytes.from_directory(smollm2_dir).table
    single = {piece: token for token, piece in enumerate(table) if len(piece) == 1}

    def whole(guide: str, text: str) -> bool:
        """Whether a schema takes a text, byte by byte, and may end there."""
        state = compiler.compile("json_schema", guide).start([single[bytes([byte])] for byte in text.encode()])
        return state.allowed() is not None and state.may_end()

    return whole


def test_white_space_in_json_is_free_up_to_sixteen(follow: Callable[[str, str], bool]) -> None:
    schema = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
    assert follow(schema, '{"a":1}')
    assert follow(schema, '{\n    "a": 1\n}')
    assert follow(schema, "{" + " " * 16 + '"a": 1}')
    assert not follow(schema, "{" + " " * 17 + '"a": 1}')
    assert not follow(schema, '{"a": 1')
