"""Which beginnings of prompts were seen before, as a server with prefix caching knows it.

Prompts are kept as chained hashes of full 16-token blocks, so memory is bounded by the
number of blocks and a block only counts together with everything before it.
"""

from collections import OrderedDict
from collections.abc import Sequence

BLOCK_TOKENS = 16


class PrefixCache:
    def __init__(self, *, blocks: int) -> None:
        self._limit = blocks
        self._seen: OrderedDict[int, None] = OrderedDict()

    def admit(self, model_id: str, prompt: Sequence[str]) -> int:
        """How many of the prompt's leading tokens are cached; from now on all of it is."""
        hit_blocks, hitting = 0, True
        key = hash(model_id)
        for start in range(0, len(prompt) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            key = hash((key, *prompt[start : start + BLOCK_TOKENS]))
            hitting = hitting and key in self._seen
            hit_blocks += hitting
            self._remember(key)
        if hit_blocks * BLOCK_TOKENS == len(prompt):
            # The last token always has to be computed to have something to go on from.
            hit_blocks = max(hit_blocks - 1, 0)
        return hit_blocks * BLOCK_TOKENS

    def _remember(self, key: int) -> None:
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > self._limit:
            self._seen.popitem(last=False)
