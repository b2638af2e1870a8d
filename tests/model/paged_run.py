"""Runs a decoder over prompts cut into chunks, through a shuffled, poisoned pool."""

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from backend.kv.storage import allocate, token_slots
from backend.model.batch import StepInputs
from backend.model.decoder import Decoder
from backend.model.kv_layout import layout_of

Step = Sequence[tuple[int, int]]  # (sequence, how many of its tokens) of each one in the step


class PagedRun:
    """Keeps a pool and the cursor of each prompt; every slot that nothing wrote is NaN, or noise in whole numbers."""

    def __init__(
        self,
        decoder: Decoder,
        prompts: list[list[int]],
        block_size: int = 4,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.decoder, self.prompts, self.block_size = decoder, prompts, block_size
        counts = [-(-len(prompt) // block_size) for prompt in prompts]
        ids = list(range(1, sum(counts) + 1))
        random.Random(seed).shuffle(ids)
        self.tables = [[ids.pop() for _ in range(count)] for count in counts]
        layout = layout_of(decoder.config, block_size, dtype)
        blocks = allocate(layout, sum(counts) + 1)
        if dtype.is_floating_point:
            blocks.fill_(torch.nan)
        else:
            blocks.random_(generator=torch.Generator().manual_seed(seed))
        self.pool = token_slots(blocks, layout)
        self.done = [0] * len(prompts)
        self.logits: list[list[Tensor]] = [[] for _ in prompts]

    def run(self, steps: Sequence[Step]) -> list[Tensor]:
        """Logits of every position of every prompt, ``[length, vocab]`` each."""
        for step in steps:
            logits = self.decoder.forward(self.inputs(step), self.pool)
            for (sequence, count), rows in zip(step, logits.split([n for _, n in step]), strict=True):
                self.logits[sequence].append(rows)
                self.done[sequence] += count
        return [torch.cat(rows) if rows else torch.empty(0) for rows in self.logits]

    def inputs(self, step: Step) -> StepInputs:
        tokens, positions, slots, starts, lengths = [], [], [], [0], []
        for sequence, count in step:
            for position in range(self.done[sequence], self.done[sequence] + count):
                tokens.append(self.prompts[sequence][position])
                positions.append(position)
                block = self.tables[sequence][position // self.block_size]
                slots.append(block * self.block_size + position % self.block_size)
            starts.append(len(tokens))
            lengths.append(self.done[sequence] + count)
        width = max(map(len, self.tables)) + 1
        tables = [self.tables[sequence] + [0] * (width - len(self.tables[sequence])) for sequence, _ in step]
        return StepInputs(
            token_ids=torch.tensor(tokens),
            positions=torch.tensor(positions),
            query_start=torch.tensor(starts, dtype=torch.int32),
            kv_lengths=torch.tensor(lengths, dtype=torch.int32),
            block_tables=torch.tensor(tables, dtype=torch.int32),
            slot_mapping=torch.tensor(slots),
            logit_rows=torch.arange(len(tokens)),
        )
