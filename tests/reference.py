"""What transformers says: greedy continuations in float32, and whether another continuation ties with it."""

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TIE = 1e-4


class Reference:
    """transformers' own model and tokenizer of a directory."""

    def __init__(self, directory: Path) -> None:
        torch.set_num_threads(os.cpu_count() or 1)  # an engine in this process has left torch one thread
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        self._known: dict[tuple[str, int], list[int]] = {}

    def prompt_ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text)["input_ids"]
        return ids

    @torch.inference_mode()
    def greedy(self, text: str, max_tokens: int) -> list[int]:
        """The ids that ``generate`` adds; computed once per prompt."""
        key = (text, max_tokens)
        if key not in self._known:
            ids = torch.tensor([self.prompt_ids(text)])
            out = self.model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, do_sample=False, pad_token_id=0
            )
            self._known[key] = out[0, ids.shape[1] :].tolist()
        return self._known[key]

    def text(self, prompt: str, output: Sequence[int]) -> str:
        """The text that the output adds to the prompt's."""
        prompt_ids = self.prompt_ids(prompt)
        before = self.tokenizer.decode(prompt_ids, skip_special_tokens=True)
        after = self.tokenizer.decode([*prompt_ids, *output], skip_special_tokens=True)
        return after.removeprefix(before) if after.startswith(before) else self.tokenizer.decode(output)

    def tied(self, prompt: str, output: Sequence[int]) -> bool:
        """Whether every id of the output has a logit within TIE of the largest, given those before it."""
        return self.tied_ids(self.prompt_ids(prompt), output)

    @torch.inference_mode()
    def tied_ids(self, prompt_ids: Sequence[int], output: Sequence[int]) -> bool:
        """The same for a prompt given as ids."""
        logits = self.model(torch.tensor([[*prompt_ids, *output]])).logits[0, len(prompt_ids) - 1 : -1]
        chosen = logits.gather(1, torch.tensor(output)[:, None])[:, 0]
        return bool((logits.max(dim=1).values - chosen <= TIE).all())

    @torch.inference_mode()
    def log_probs(self, ids: Sequence[int]) -> torch.Tensor:
        """Log-probabilities of all tokens after these. Returns float32 ``[vocab]``."""
        return torch.log_softmax(self.model(torch.tensor([list(ids)])).logits[0, -1].float(), dim=-1)

    def check_ids(self, prompt: str, max_tokens: int, output: Sequence[int]) -> None:
        """Assert that the output is what ``generate`` gives; where logits tie within 1e-4, either is accepted."""
        expected = self.greedy(prompt, max_tokens)
        assert list(output) == expected or self.tied(prompt, output), (
            f"{prompt[:40]!r}: {self.tokenizer.decode(output)!r} is not {self.tokenizer.decode(expected)!r}"
        )
