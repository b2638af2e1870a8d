"""Texts to fuzz with: prompts, JSON of all kinds, guides, sampling parameters; sound ones and hostile ones."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

DEEP = 100_000
"""Levels of brackets: more than any parser can follow by calling itself."""
LONG = 40_000
PROMPTS = (
    "The capital of France is",
    "Once upon a time",
    "One, two, three,",
    'Write "JSON":',
    "naïve café — 東京 \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "<|im_start|>user\nhello<|im_end|>\n",
)

# Slashes are left out of generated text: an error that repeats it would look as if it held a path.
plain_text = st.text(st.characters(codec="utf-8", exclude_characters="/"), max_size=20)
prompts = st.sampled_from(PROMPTS) | plain_text.filter(bool)

ill_formed = st.sampled_from(
    [b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"abc\xf0\x9f\x91", b"\x80", b"\xc0\xaf", b"\xf8\x88\x80\x80\x80"]
)
odd_bytes = st.one_of(
    ill_formed,
    st.binary(max_size=24).map(lambda data: data.replace(b"/", b"")),
    st.sampled_from([b"", b" ", b"\n", b"\r\n\r\n", b"\x00", "\u200b".encode(), b"data: x\n\n", b"\x1b[2J", b"%s%n{}"]),
    st.integers(1, LONG).map(lambda size: b"x" * size),
    st.integers(1, LONG // 4).map(lambda size: "é\n".encode() * size),
)

big_numbers = st.sampled_from(
    [
        *(-1, 0, 1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64),
        *(-(2**63), 10**30, -(10**400)),
    ]
)
floats = st.floats(width=64) | st.sampled_from([float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, 1e308])
numbers_as_text = st.one_of(
    big_numbers.map(str), floats.map(str), st.sampled_from(["", " 7 ", "1_000", "٣", "0x10", "1e5", "+5", "9" * 5000])
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), big_numbers, floats, plain_text, numbers_as_text),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(plain_text, inner, max_size=4),
    max_leaves=8,
)


def nested(depth: int, kind: str) -> str:
    """JSON with so many levels of lists or objects."""
    return "[" * depth + "]" * depth if kind == "list" else '{"a":' * depth + "1" + "}" * depth


depths = st.sampled_from([100, 900, 1500, 5000, DEEP])
deep_json = st.builds(nested, depths, st.sampled_from(["list", "object"]))
broken_json = st.one_of(
    st.sampled_from(
        ["{", "[1,", '{"a" 1}', "nul", "{'a': 1}", '{"a": 1,}', '"\\ud800"', '{"a": 1}{', "\ufeff{}", "[]"]
    ),
    json_values.map(lambda value: json.dumps(value)[:-1]),
    plain_text,
)

GUIDES = {
    "json": ("",),
    "json_schema": (
        '{"type": "object", "properties": {"a": {"type": "integer"}}}',
        '{"enum": ["yes", "no"]}',
        '{"type": "array", "items": {"type": "boolean"}, "maxItems": 3}',
        "{}",
    ),
    "regex": ("(yes|no)", "[a-z]{1,8}", "a*", ".*"),
    "ebnf_grammar": ('root ::= "yes" | "no"', 'root ::= [a-z]+ " " root | "."'),
}
HOSTILE_GUIDES = (
    '{"$ref": "#"}',
    '{"$ref": "#/nowhere"}',
    '{"allOf": [{"$ref": "#"}]}',
    '{"type": "strange"}',
    '{"type": "string", "pattern": "("}',
    '{"type": "string", "minLength": 99999999999999999999}',
    '{"minimum": 5, "maximum": 1, "type": "integer"}',
    '{"const": NaN}',
    "false",
    "null",
    "(a",
    "a{1000000}",
    "(a{1000}){1000}",
    "((((a*)*)*)*)*b",
    "(?=a)b",
    "[z-a]",
    "\\p{Nonsense}",
    "root ::= root",
    'root ::= root "a"',
    'other ::= "a"',
    "root ::= nothing",
    'root ::= "a',
    'root ::= "a"{3,1}',
    'root ::= "a"{99999999}',
    "root ::= [",
    "start: /a/\n%ignore /b/",
    "%llguidance {}",
)
guides = st.one_of(
    st.sampled_from([text for texts in GUIDES.values() for text in texts]),
    st.sampled_from(HOSTILE_GUIDES),
    st.text(st.sampled_from('(){}[]|*+?.^$\\abc"#:=,0 \n'), max_size=30),
    json_values.map(lambda value: json.dumps(value)),
    deep_json,
    st.integers(1, 70_000).map(lambda size: "a" * size),
)
"""Any of them for any type of guide."""

_SAMPLING: dict[str, st.SearchStrategy[Any]] = {
    "max_tokens": st.integers(1, 6),
    "min_tokens": st.integers(0, 2),
    "temperature": st.floats(0, 2),
    "top_k": st.integers(-1, 40),
    "top_p": st.floats(0.1, 1),
    "min_p": st.floats(0, 1),
    "repetition_penalty": st.floats(0.5, 2),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "seed": st.integers(0, 2**64 - 1),
    "n": st.integers(1, 3),
    "stop": st.sampled_from(["", "e", ["a", "the"]]),
    "stop_token_ids": st.lists(st.integers(0, 49151), max_size=3),
    "bad_words": st.lists(st.sampled_from(["Paris", "the", " a"]), max_size=3),
    "logit_bias": st.dictionaries(st.integers(0, 49151).map(str), st.floats(-50, 50), max_size=3),
    "ignore_eos": st.booleans(),
    "logprobs": st.integers(0, 5),
    "priority": st.integers(0, 3),
    "tenant": st.sampled_from(["", "a", "b"]),
    "structured_outputs": st.sampled_from([{"regex": "(yes|no)"}, {"choice": ["a", "b"]}, {"json_object": True}]),
}
_KNOWN = [*_SAMPLING, "best_of", "use_beam_search", "length_penalty", "cache_salt", "guided_decoding", "lora_name"]


@st.composite
def sampling_parameters(draw: st.DrawFn, wild: bool) -> dict[str, Any]:
    """vLLM's sampling parameters. wild: some of the values are of any kind, and so is a key now and then."""
    chosen = draw(st.lists(st.sampled_from(list(_SAMPLING)), max_size=4, unique=True))
    values = {"max_tokens": draw(_SAMPLING["max_tokens"])} | {name: draw(_SAMPLING[name]) for name in chosen}
    if draw(st.integers(0, 3)) == 0:
        values = {name: str(value) if isinstance(value, int | float) else value for name, value in values.items()}
    if wild:
        hostile = st.one_of(json_values, guides.map(lambda text: {"json": text, "regex": text}))
        values[draw(st.sampled_from(_KNOWN))] = draw(hostile)
        if draw(st.booleans()):
            values[draw(plain_text | st.just("k" * 3000))] = draw(json_values)
    return values


def as_json(value: Any) -> str:
    """As Python's writer has it, NaN and infinities included; half a surrogate pair as an escape."""
    return json.dumps(value)
