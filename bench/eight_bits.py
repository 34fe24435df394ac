"""MiniLM with weights that stay in 8 bits, for `bench.embedding_cost`; nothing of it ships.

ONNX Runtime's MatMulNBits multiplies blocks of a column's int8 weights.  The packaged weights have
one scale a column, so that they are kept exactly, whatever the size of a block; but at accuracy
level 4 activations are rounded to int8 too, each row in blocks of its own.  So a text keeps the
same vector alone and among others, but it is not that of float32.
"""

import numpy as np
import numpy.typing as npt

from amv.embedders import minilm, minilm_graph
from amv.embedders.minilm_graph import HEADS, LAYERS
from amv.embedders.protobuf import message

_FLOAT, _UINT8 = 1, 2
_ZERO = 128
"""What stands for zero in the operator's unsigned numbers."""

_ACTIVATIONS_IN_INT8 = 4


class _Graph(minilm_graph._Graph):
    def __init__(self, content: bytes, block: int) -> None:
        found = minilm_graph.tensors(content)
        super().__init__(minilm._packaged_model().name, found)
        self._content = content
        self._block = block

    def numbers(self, name: str, kind: str) -> npt.NDArray[np.generic]:
        one = self._found[name]
        flat = np.frombuffer(self._content, kind, offset=one.begin, count=int(np.prod(one.dims)))
        return flat.reshape(one.dims)

    def inline(self, name: str, kind: int, data: npt.NDArray[np.generic]) -> str:
        self._used[name] = message({1: list(data.shape), 2: kind, 8: name, 9: data.tobytes()})
        return name

    def product(self, given: str, name: str) -> str:
        """Multiply by the weights called *name*."""
        weights = self.numbers(f"{name}_q", "i1").astype(np.int16)
        scales = self.numbers(f"{name}_scale", "<f4")
        depth, width = weights.shape
        blocks = depth // self._block
        columns = (weights + _ZERO).astype(np.uint8).T.reshape(width, blocks, self._block)
        by_block = np.repeat(scales.reshape(width, 1), blocks, axis=1)
        return self.node(
            "MatMulNBits",
            given,
            self.inline(f"{name} blocks", _UINT8, columns),
            self.inline(f"{name} scales", _FLOAT, by_block),
            domain=minilm_graph._FUSED,
            K=depth,
            N=width,
            bits=8,
            block_size=self._block,
            accuracy_level=_ACTIVATIONS_IN_INT8,
        )


def written(block: int) -> bytes:
    """Return the graph, weights included, in blocks of so many."""
    graph = _Graph(minilm._packaged_model().read_bytes(), block)
    hidden = minilm_graph._embedded(graph)
    mask = graph.node("Cast", "attention_mask", to=minilm_graph._INT32)
    products = minilm_graph.products(list(graph._found.values()))
    for layer in range(LAYERS):
        hidden = _layer(graph, layer, products[layer], hidden, mask)
    return graph.model(["input_ids", "attention_mask"], hidden)


def _layer(graph: _Graph, layer: int, products: dict[str, str], hidden: str, mask: str) -> str:
    base = f"inner.encoder.layer.{layer}."
    asked = [
        graph.node(
            "Add",
            graph.product(hidden, products[part]),
            graph.weight(f"{base}attention.self.{part}.bias"),
        )
        for part in ("query", "key", "value")
    ]
    attended = graph.node(
        "MultiHeadAttention", *asked, "", mask, domain=minilm_graph._FUSED, num_heads=HEADS
    )
    out = graph.product(attended, products["out"])
    hidden = minilm_graph._added(graph, f"{base}attention.output.", out, hidden)
    up = graph.product(hidden, products["up"])
    wide = graph.node(
        "BiasGelu",
        up,
        graph.weight(f"{base}intermediate.dense.bias"),
        domain=minilm_graph._FUSED,
    )
    down = graph.product(wide, products["down"])
    return minilm_graph._added(graph, f"{base}output.", down, hidden)
