"""A prompt's ids are those of transformers' tokenizer, special tokens included, from as many threads as there are."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import transformers

from backend.text.prompt_tokenizer import PromptTokenizer
from backend.text.spellings import Spellings
from backend.text.token_bytes import TokenBytes
from tests.prompts import VARIED

START, END = 1, 2


@pytest.fixture(scope="module")
def tokenizer(smollm2_dir: Path) -> PromptTokenizer:
    return PromptTokenizer(smollm2_dir)


def with_bos(source: Path, place: Path, **config: object) -> PromptTokenizer:
    """SmolLM2's tokenizer with another tokenizer_config.json."""
    shutil.copy(source / "tokenizer.json", place)
    (place / "tokenizer_config.json").write_text(json.dumps(config))
    return PromptTokenizer(place)


def test_special_tokens_in_a_prompt_are_read_as_such_and_others_typed_are_text(tokenizer: PromptTokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>user\nhi<|im_end|>")
    assert (ids[0], ids[-1]) == (START, END)
    assert {START, END}.isdisjoint(tokenizer.encode("<s>hi</s> <|im_start |> [INST]"))


def test_a_beginning_of_sequence_is_added_where_the_files_say_so_and_never_twice(
    smollm2_dir: Path, tmp_path: Path
) -> None:
    (plain := tmp_path / "plain").mkdir()
    (adds := tmp_path / "adds").mkdir()
    without = with_bos(smollm2_dir, plain, bos_token="<|im_start|>")
    assert START not in without.encode("hi")
    adding = with_bos(smollm2_dir, adds, bos_token="<|im_start|>", add_bos_token=True)
    hi = without.encode("hi")
    assert adding.encode("hi") == [START, *hi]
    assert adding.encode("<|im_start|>hi") == [START, *hi], "a chat template has written it"
    assert adding.encode_plain("hi") == hi


def test_special_tokens_stand_for_no_text(smollm2_dir: Path) -> None:
    table = TokenBytes.from_directory(smollm2_dir)
    special = [token["id"] for token in json.loads((smollm2_dir / "tokenizer.json").read_text())["added_tokens"]]
    assert len(special) > 10
    assert table.join(special) == b""
    assert table.join([END, *PromptTokenizer(smollm2_dir).encode("héllo"), START]) == "héllo".encode()


def test_sixty_four_threads_with_prompts_of_all_lengths_get_what_one_gets(
    tokenizer: PromptTokenizer, smollm2_dir: Path
) -> None:
    oracle = transformers.AutoTokenizer.from_pretrained(smollm2_dir)
    texts = [prompt[:length] for prompt in VARIED for length in (1, 7, 60, 2000)]
    expected = [oracle(text)["input_ids"] for text in texts]
    spellings = Spellings(tokenizer, TokenBytes.from_directory(smollm2_dir))
    words = [text.strip()[:12] or "a" for text in texts]
    spelt = [spellings.of(word) for word in words]
    with ThreadPoolExecutor(64) as pool:
        for _ in range(4):
            found = [pool.submit(tokenizer.encode, text) for text in texts]
            beside = [pool.submit(spellings.of, word) for word in words]
            assert [each.result() for each in found] == expected
            assert [each.result() for each in beside] == spelt
