"""Cases: whole requests to any entry, made from the entries' configurations, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from scripts.interface_table.configs import ENTRIES, Model, Tensor, models
from tests.fuzz import texts, values
from tests.fuzz.wire import WireTensor

MODELS: dict[str, Model] = models()
"""The entries, and the models behind them, which whoever reaches the server can call as well."""
WEIGHTED = (*ENTRIES, *ENTRIES, *ENTRIES, *MODELS)
BATCH = 50
"""Cases that are made at a time: what a number in a run stands for depends on the seed and on nothing else."""
REQUEST_IDS = ("", "a", "b", "a b\n", "é" * 40, "x" * 3000)
MAX_ROWS = 3


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request. door: ``grpc``, or the end of an HTTP address. sound: every part of it is one that is served.

    leaves_after: the client goes after so many responses (events); None for one that stays.
    """

    model: str
    door: str
    sound: bool
    tensors: tuple[WireTensor, ...] = ()
    parameters: tuple[tuple[str, Any], ...] = ()
    body: bytes = b""
    request_id: str = ""
    leaves_after: int | None = None

    def __str__(self) -> str:
        sent = "; ".join(map(repr, self.tensors)) or repr(self.body[:600])
        more = f" parameters {str(dict(self.parameters))[:400]}" if self.parameters else ""
        leaves = "" if self.leaves_after is None else f" leaves after {self.leaves_after}"
        return f"{self.model} {self.door} id={self.request_id[:20]!r}{leaves}{more}: {sent}"


_parameter_values = st.one_of(
    texts.plain_text,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    texts.big_numbers.filter(lambda n: -(2**63) <= n < 2**63),
    texts.floats,
    texts.numbers_as_text,
    st.just("long " * 5000),
)
_parameter_names = st.one_of(
    st.sampled_from(["request_priority", "tenant", "cache_salt", "pad_id", "Streaming", "request_type", "temperature"]),
    st.sampled_from(["timeout", "priority", "sequence_id", "sequence_start", "headers", "binary_data_output"]),
    st.sampled_from(["max_tokens", "seed", "stop", "n", "logprobs", "no_such\nthing", "k" * 3000]),
    texts.plain_text,
)
_wild_parameters = st.dictionaries(_parameter_names, _parameter_values, min_size=1, max_size=3)
_sound_parameters = st.fixed_dictionaries(
    {},
    optional={
        "request_priority": st.integers(1, 3),
        "tenant": st.sampled_from(["a", "b"]),
        "cache_salt": st.sampled_from(["a", "b"]),
    },
)


@st.composite
def _chosen(draw: st.DrawFn, model: Model, sound: bool, turn: int) -> list[Tensor]:
    """The inputs of one request: those that it needs, and a few others, now and then of those that are not served."""
    needed = [each for each in model.inputs if each.required or each.name in ("text_input", "max_tokens")]
    others = [each for each in model.inputs if each not in needed]
    # hypothesis likes what it has drawn before, and left some inputs out of 20,000 requests: here each has its turn.
    due = [others[turn % len(others)]] if others else []
    if sound or draw(st.integers(0, 4)):
        others = [each for each in others if each.name not in values.NEVER_SOUND]
        due = [each for each in due if not sound or each in others]
    drawn = draw(st.lists(st.sampled_from(others), max_size=4, unique=True)) if others else []
    return needed + due + [each for each in drawn if each not in due]


def _one_or_two(chosen: list[Tensor]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from([each.name for each in chosen]), min_size=1, max_size=2, unique=True)


@st.composite
def _tensors(draw: st.DrawFn, model: Model, sound: bool, turn: int) -> tuple[WireTensor, ...]:
    rows = None if not model.batched else 1
    if model.name == "tensorrt_llm":
        rows = draw(st.integers(1, MAX_ROWS))
    chosen = draw(_chosen(model, sound, turn))
    given_values = {each.name: draw(values.sound(each)) for each in chosen}
    if "input_lengths" in given_values:
        given_values["input_lengths"] = [len(given_values.get("input_ids", [0]))]
    victims: set[str] = set()
    if not sound:
        victims = set(
            draw(st.lists(st.sampled_from([each.name for each in chosen]), min_size=1, max_size=2, unique=True))
        )
    made = []
    for each in chosen:
        flat = draw(values.hostile(each)) if each.name in victims else given_values[each.name]
        tensor = values.whole(each, flat, rows)
        if each.name in victims and draw(st.integers(0, 2)) == 0:
            tensor = draw(values.spoilt(tensor))
        made.append(tensor)
    if not sound:
        made = draw(_rearranged(made))
    stop = next((each for each in model.inputs if each.name == "stop"), None)
    if stop is not None and draw(st.integers(0, 19)) == 0:
        made = [each for each in made if each.name != "stop"] + [values.whole(stop, [True], rows)]
    return tuple(made)


@st.composite
def _rearranged(draw: st.DrawFn, tensors: list[WireTensor]) -> list[WireTensor]:
    """Now and then one is missing, twice there, or has a name that none has."""
    way = draw(st.integers(0, 9))
    if way == 0:
        return tensors[draw(st.integers(0, len(tensors))) :]
    if way == 1:
        return [*tensors, tensors[0]]
    if way == 2:
        name = draw(st.sampled_from(["no_such_input", "text_input", "input_ids", "", "bad name"]))
        return [*tensors, tensors[-1]._replace(name=name)]
    return tensors


def _plain(flat: list[Any]) -> Any:
    """Values as JSON has them: one alone as such."""
    shown = [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in flat]
    return shown[0] if len(shown) == 1 else shown


@st.composite
def _body(draw: st.DrawFn, model: Model, sound: bool, turn: int) -> bytes:
    chosen = draw(_chosen(model, sound, turn))
    fields: dict[str, Any] = {each.name: _plain(list(draw(values.sound(each)))) for each in chosen}
    if "input_lengths" in fields:
        ids = fields.get("input_ids", 0)
        fields["input_lengths"] = len(ids) if isinstance(ids, list) else 1
    if not sound:
        for name in draw(
            st.lists(st.sampled_from([each.name for each in chosen]), min_size=1, max_size=2, unique=True)
        ):
            fields[name] = draw(texts.json_values)
        # Triton Server's own errors say such a name again as it came, so here it is one that can be shown.
        names = _parameter_names.filter(lambda name: name.isprintable() and len(name) < 99)
        fields |= draw(st.dictionaries(names, texts.json_values, max_size=2))
        if draw(st.integers(0, 9)) == 0:
            broken = draw(st.one_of(texts.broken_json, texts.deep_json))
            return broken.encode("utf-8", "surrogatepass")
        if draw(st.integers(0, 19)) == 0:
            return draw(texts.odd_bytes)
        fields |= draw(st.sampled_from([{}, {}, {"id": "a"}, {"id": 7}, {"parameters": {"top_k": 1, "tenant": []}}]))
        written = texts.as_json(fields).encode()
        return written.replace(b"e", b"\xff") if draw(st.integers(0, 19)) == 0 else written
    return texts.as_json(fields).encode()


_DOORS = ("grpc", "grpc", "grpc", "grpc", "generate", "generate_stream") * 3


@st.composite
def cases(draw: st.DrawFn, turn: int = 0) -> Case:
    """One case; a third of them are sound from end to end. turn: chooses an input that most have."""
    model = MODELS[draw(st.sampled_from(WEIGHTED))]
    sound = draw(st.integers(0, 2)) == 0
    door = draw(st.sampled_from(_DOORS if sound else (*_DOORS, "infer")))
    leaves = draw(st.none() | st.none() | st.none() | st.integers(0, 3))
    common: dict[str, Any] = {"model": model.name, "door": door, "sound": sound, "leaves_after": leaves}
    if door != "grpc":
        return Case(body=draw(_body(model, sound, turn)), **common)
    parameters = draw(_sound_parameters)
    if not sound and draw(st.booleans()):
        parameters = draw(_wild_parameters)
    return Case(
        tensors=draw(_tensors(model, sound, turn)),
        parameters=tuple(parameters.items()),
        request_id=draw(st.sampled_from(REQUEST_IDS)),
        **common,
    )


def batch(run_seed: int, number: int) -> list[Case]:
    """The cases number * BATCH up to the next batch's first."""
    made: list[Case] = []

    @seed(run_seed * 1_000_003 + number)
    @settings(
        max_examples=BATCH + 1,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(number))
    def collect(case: Case) -> None:
        made.append(case)

    collect()
    return made[1:][:BATCH]  # hypothesis begins each time with the simplest of all


def numbered(run_seed: int, start: int, count: int) -> Iterator[tuple[int, Case]]:
    """So many cases of a run from one on, with their numbers."""
    for number in range(start // BATCH, -(-(start + count) // BATCH)):
        for place, case in enumerate(batch(run_seed, number), number * BATCH):
            if start <= place < start + count:
                yield place, case
