"""Attention over a shared prefix and a batch of continuations, for `LocalPolicy`.

Repair prompts of one level share a long few-shot prefix. Its keys and values are computed once, for one row, and every
row of a batch attends to that single copy in one matrix product; only what differs is stored by row, in a buffer of
known size. So a long prefix costs neither a prefill nor memory nor a copy for each row, which transformers' own
caches would ask for (they repeat it for each row, and grow by concatenation).

Registered with transformers under `NAME`; a model opened with `attn_implementation=NAME` must be called with
`keep=KeyValues(...)`, `use_cache=False` and a 4-D additive mask over the rows' own columns.
Not covered: training, sliding windows, dropout.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

NAME = "flywheel_prefix"


class KeyValues:
    """Keys and values of every layer: a shared prefix, and up to `capacity` columns for each row of a batch."""

    def __init__(self, capacity: int, prefix: KeyValues | None = None) -> None:
        self.capacity = capacity
        self.columns = 0  # filled, the same for all rows
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}  # layer -> keys, values: [rows, heads, capacity, size]
        self.prefix = prefix

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store the new columns of one layer; all columns so far come back. `advance` follows the last layer."""
        rows, heads, new, size = key.shape
        if layer not in self.layers:
            empty = (rows, heads, self.capacity, size)
            self.layers[layer] = (key.new_zeros(empty), value.new_zeros(empty))
        keys, values = self.layers[layer]
        keys[:, :, self.columns : self.columns + new] = key
        values[:, :, self.columns : self.columns + new] = value
        return keys[:, :, : self.columns + new], values[:, :, : self.columns + new]

    def advance(self, new: int) -> None:
        """Count the columns that a whole forward pass has added."""
        self.columns += new

    def select(self, rows: Tensor) -> None:
        """Keep (or repeat) these rows, in this order."""
        self.layers = {ix: (keys[rows], values[rows]) for ix, (keys, values) in self.layers.items()}

    def shared(self, layer: int) -> tuple[Tensor, Tensor] | None:
        """Keys and values of the prefix, [heads, columns, size]."""
        if self.prefix is None or not self.prefix.columns:
            return None
        keys, values = self.prefix.layers[layer]
        return keys[0, :, : self.prefix.columns], values[0, :, : self.prefix.columns]


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, *, scaling: float, **kwargs: Any
) -> tuple[Tensor, None]:
    """Grouped-query attention; `kwargs["keep"]` is the `KeyValues` to read and to extend.

    query [rows, heads x groups, new, size], key and value [rows, heads, new, size], attention_mask
    [rows, 1, new, columns] additive. Returns [rows, new, heads x groups, size].
    """
    keep: KeyValues = kwargs["keep"]
    keys, values = keep.extend(module.layer_idx, key, value)
    rows, all_heads, new, size = query.shape
    heads = keys.shape[1]
    groups = all_heads // heads
    grouped = query.reshape(rows, heads, groups * new, size) * scaling
    own = grouped @ keys.transpose(-1, -2)
    own = (own.view(rows, heads, groups, new, -1) + attention_mask[:, :, None]).view(rows, heads, groups * new, -1)
    prefix = keep.shared(module.layer_idx)
    if prefix is None:
        out = own.softmax(-1, dtype=torch.float32).to(value.dtype) @ values
    else:
        stacked = grouped.transpose(0, 1).reshape(heads, rows * groups * new, size)
        seen = (stacked @ prefix[0].transpose(-1, -2)).view(heads, rows, groups * new, -1).transpose(0, 1)
        weights = torch.cat((seen, own), -1).softmax(-1, dtype=torch.float32).to(value.dtype)
        length = seen.shape[-1]
        far = weights[..., :length].transpose(0, 1).reshape(heads, rows * groups * new, length) @ prefix[1]
        out = weights[..., length:] @ values + far.view(heads, rows, groups * new, size).transpose(0, 1)
    return out.view(rows, all_heads, new, size).transpose(1, 2), None
