"""Every input that an entry declares changes the answer, is refused by name, or is said to have no effect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.interface_table.configs import ENTRIES, models
from tests.server.entries.client import Client, Reply
from tests.server.entries.effects import (
    BASES,
    EFFECTS,
    ELSEWHERE,
    NO_EFFECT,
    OF_MODEL,
    REFUSED,
    STOP_ONLY,
    served,
)

TESTS = Path(__file__).resolve().parents[2]
DECLARED = [(model, each) for model in ENTRIES for each in models()[model].inputs]
TIMES = re.compile(r".*_ns$|engine_key|cumulative_logprob|.*log_probs?$")


def test_no_input_is_left_out_of_the_tables_and_none_is_in_two() -> None:
    for model, each in DECLARED:
        elsewhere = (each.name in REFUSED) + (each.name in NO_EFFECT) + (each.name in ELSEWHERE)
        assert elsewhere + ((model, each.name) in STOP_ONLY) + served(model, each.name) == 1, (model, each.name)
        assert not served(model, each.name) or each.name in EFFECTS or (model, each.name) in OF_MODEL, (
            f"{model} {each.name} has no request in which it changes the answer"
        )


@pytest.mark.parametrize("test", ELSEWHERE.values())
def test_the_tests_that_the_table_names_are_there(test: str) -> None:
    file, name = test.split("::")
    assert f"def {name}(" in (TESTS / file).read_text()


def answered(reply: Reply) -> Any:
    """What was said, without what differs each time anyway."""
    return reply.error, [
        {name: value for name, value in each.items() if not TIMES.fullmatch(name)} | {"outputs": sorted(each)}
        for each in reply.responses
    ]


SERVED = [(model, each.name) for model, each in DECLARED if served(model, each.name)]


@pytest.fixture(scope="module")
def plain_answers() -> dict[str, Any]:
    """What each plain request was answered with, asked twice."""
    return {}


@pytest.mark.server
@pytest.mark.nightly
@pytest.mark.parametrize(("model", "name"), SERVED, ids=lambda each: str(each))
def test_the_input_changes_the_answer(client: Client, plain_answers: dict[str, Any], model: str, name: str) -> None:
    effect = OF_MODEL.get((model, name)) or EFFECTS[name]
    own = {each.name for owner, each in DECLARED if owner == model}
    plain = BASES[model] | {field: value for field, value in (effect.also or {}).items() if field in own}
    if (key := f"{model} {plain}") not in plain_answers:
        first, second = client.ask(model, **plain), client.ask(model, **plain)
        assert first.error == ""
        assert answered(first) == answered(second) or name == "cache_salt", "what changes by itself proves nothing"
        plain_answers[key] = answered(second)
    # No other test has filled the cache under this one's salt.
    changed = client.ask(model, **plain | {name: model if name == "cache_salt" else effect.value})
    assert answered(changed) != plain_answers[key]
    assert changed.error == "" or (model, name) == ("inflight_batcher", "input_lengths")


def value_of(datatype: str, dims: tuple[int, ...], value: Any) -> Any:
    """A value as the input's type and rank want it."""
    kinds = {"BYTES": str, "BOOL": bool, "FP16": float, "FP32": float}
    one = kinds.get(datatype, int)(value)
    if len(dims) == 1:
        return one
    return np.full([1, *(abs(dim) for dim in dims)], one)


@pytest.mark.server
@pytest.mark.nightly
def test_what_is_not_served_is_refused_by_name_in_every_entry(client: Client) -> None:
    seen = 0
    for model, each in DECLARED:
        if each.name in REFUSED:
            value = value_of(each.datatype, each.dims, REFUSED[each.name])
            reply = client.ask(model, **BASES[model] | {each.name: value})
            prefix = "retention_token_range_" if each.name.startswith("retention") else each.name
            assert reply.error, (model, each.name)
            assert re.search(rf"\b{prefix}\w*: ", reply.error.replace("length_penalty", each.name)), reply.error
            seen += 1
        elif (model, each.name) in STOP_ONLY:
            assert f"{each.name}: is taken with stop" in client.ask(model, **BASES[model] | {each.name: 1}).error
            seen += 1
    assert seen > 30


@pytest.mark.server
@pytest.mark.nightly
def test_what_is_said_to_have_no_effect_has_none(client: Client) -> None:
    for model, each in DECLARED:
        if each.name in NO_EFFECT:
            plain = answered(client.ask(model, **BASES[model]))
            assert answered(client.ask(model, **BASES[model] | {each.name: NO_EFFECT[each.name]})) == plain
