"""What a scheduler is told at load, and never again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerSettings:
    """Limits and policy of a scheduler.

    block_size: token slots of a block.
    max_batch_size: slots, that is sequences that run at the same time.
    max_num_tokens: tokens that a step may compute.
    max_seq_len: prompt and output tokens of a sequence.
    guaranteed_no_evict: admit only what the pool can hold to its end, and never preempt for growth; otherwise
        (TensorRT-LLM's max_utilization) admit what fits now, and preempt when it no longer does.
    preemption: whether a waiting request may take from less urgent running ones.
    preemption_cap: after so many preemptions a sequence is admitted again only with its end reserved.
    free_block_reserve: share of the pool that admission leaves free while something runs; not kept from a request that
        could take from less urgent ones anyway.
    ageing_seconds: a waiter moves up one level in order per so many seconds; 0 = never.
    target_step_seconds: prompt chunks are cut so that a step with decoding sequences stays within this; 0 = no target.
    max_step_seconds: prompt chunks of all but the most urgent level are cut so that a step stays within this, whatever
        else is in it: a more urgent arrival has to wait for a step to end. Where the step's decodes alone take so long
        that half as much again is more, within that: many streams take their time, and prompts are to get on beside
        them. 0 = no limit.
    interruptible: a step with chunks is ended early when someone more urgent than all in it arrives, so that the limit
        of ``max_step_seconds`` holds only for some time after that has happened.
    ride_along: share of a step's time by which less urgent prompts may lengthen it if it has a more urgent one's chunk.
    input_weight, output_weight: what a token costs its tenant's share.
    """

    block_size: int
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    guaranteed_no_evict: bool = False
    preemption: bool = True
    prefix_cache: bool = True
    preemption_cap: int = 3
    free_block_reserve: float = 0.02
    ageing_seconds: float = 0.0
    target_step_seconds: float = 0.0
    max_step_seconds: float = 0.0
    interruptible: bool = False
    ride_along: float = 0.1
    input_weight: float = 1.0
    output_weight: float = 2.0
