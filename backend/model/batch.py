"""What a decoder is given for one step."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class StepInputs:
    """A padding-free batch of ``T`` rows of ``S`` sequences: prompt chunks and decode tokens side by side.

    All tensors are on the decoder's device. Sequence ``s`` owns rows ``query_start[s] .. query_start[s + 1] - 1``,
    in order of position.
    """

    token_ids: Tensor  # int64 [T]
    positions: Tensor  # int64 [T]
    query_start: Tensor  # int32 [S + 1]
    kv_lengths: Tensor  # int32 [S], keys visible after this step's writes
    block_tables: Tensor  # int32 [S, max_blocks]; unused entries 0
    slot_mapping: Tensor  # int64 [T], block * block_size + offset
    logit_rows: Tensor  # int64 [R], rows whose logits are wanted
