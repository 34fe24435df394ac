"""The arithmetic of MiniLM, written for ONNX Runtime anew; the weights stay in the packaged file.

The packaged graph is what an exporter made of the model, some 400 nodes, and ONNX Runtime finds in
them no attention to run in one piece; what it unfolds to float32 when it loads is also the table
of 30,522 tokens.  This one runs 7 nodes a layer: query, key and value are one product, attention,
GELU and normalisation are one kernel each, and a token's row is unfolded when it is read.  Vectors
are the same to 1e-6, for less CPU and memory (docs/explanation/retrieval.md).

A graph names its weights by where they begin in the packaged file, so that none is copied.
Numbers of fields and types are those of onnx.proto3 (github.com/onnx/onnx).
"""

from collections.abc import Sequence
from typing import NamedTuple

from amv.embedders.protobuf import Value, fields, message

LAYERS = 6
HEADS = 12
EPSILON = 1e-12

_FLOAT, _INT8, _INT32, _INT64 = 1, 3, 6, 7
_IR_VERSION, _OPSET = 10, 18
_FUSED = "com.microsoft"
"""Where ONNX Runtime's own operators are."""

_PRODUCTS = ("query", "key", "value", "out", "up", "down")
"""In this order a layer multiplies, and so its weights lie in the file."""


class Tensor(NamedTuple):
    """Where the numbers of one tensor are in the packaged file."""

    name: str
    dims: tuple[int, ...]
    kind: int
    begin: int
    size: int


def tensors(content: bytes) -> list[Tensor]:
    """Return the tensors of a model's file, in their order."""
    found = []
    for model in fields(content, 0, len(content)):
        if model.number == 7:
            for part in fields(content, model.begin, model.end):
                if part.number == 5:
                    found.append(_tensor(content, part.begin, part.end))
    return found


def _tensor(content: bytes, begin: int, end: int) -> Tensor:
    name, dims, kind, where, size = "", [], 0, 0, 0
    for field in fields(content, begin, end):
        if field.number == 1:
            dims.append(field.value)
        elif field.number == 2:
            kind = field.value
        elif field.number == 8:
            name = content[field.begin : field.end].decode()
        elif field.number == 9:
            where, size = field.begin, field.end - field.begin
    return Tensor(name, tuple(dims), kind, where, size)


class _Graph:
    """A graph as it grows: each node is written down, and the name of what it gives returned."""

    def __init__(self, file_name: str, found: Sequence[Tensor]) -> None:
        self._file_name = file_name
        self._found = {one.name: one for one in found}
        self._nodes: list[bytes] = []
        self._used: dict[str, bytes] = {}

    def weight(self, name: str) -> str:
        """Have a tensor of the packaged file in the graph."""
        one = self._found[name]
        where = {"location": self._file_name, "offset": str(one.begin), "length": str(one.size)}
        entries = [message({1: key, 2: value}) for key, value in where.items()]
        self._used[name] = message(
            {1: list(one.dims), 2: one.kind, 8: name, 13: entries, 14: 1}  # 14: it is elsewhere
        )
        return name

    def whole(self, name: str, number: int) -> str:
        """Have a whole number in the graph, as a tensor of one."""
        self._used[name] = message({1: 1, 2: _INT64, 7: number, 8: name})
        return name

    def node(self, kind: str, *given: str, domain: str = "", **attributes: int | float) -> str:
        name = f"{kind} {len(self._nodes)}"
        told = [
            message({1: key, 20: 1, 2: value})
            if isinstance(value, float)
            else message({1: key, 20: 2, 3: value})
            for key, value in attributes.items()
        ]
        parts: dict[int, Value | Sequence[Value]]
        parts = {1: list(given), 2: name, 4: kind, 5: told, 7: domain}
        self._nodes.append(message(parts))
        return name

    def unfolded(self, name: str, *, rows: str | None = None) -> str:
        """Return int8 weights times their scales, in float32; of a table only the *rows*."""
        numbers, scales = self.weight(f"{name}_q"), self.weight(f"{name}_scale")
        if rows is not None:
            numbers = self.node("Gather", numbers, rows)
            scales = self.node("Gather", scales, rows)
        return self.node("Mul", self.node("Cast", numbers, to=_FLOAT), scales)

    def model(self, given: Sequence[str], result: str) -> bytes:
        """Return the file."""
        self._nodes.append(message({1: result, 2: "vectors", 4: "Identity"}))
        sized = {name: self._named(name, _INT64, ["texts", "tokens"]) for name in given}
        graph: dict[int, Value | Sequence[Value]] = {
            1: self._nodes,
            2: "minilm",
            5: list(self._used.values()),
            11: list(sized.values()),
            12: self._named("vectors", _FLOAT, ["texts", "tokens", "numbers"]),
        }
        sets = [message({1: "", 2: _OPSET}), message({1: _FUSED, 2: 1})]
        return message({1: _IR_VERSION, 7: message(graph), 8: sets})

    @staticmethod
    def _named(name: str, kind: int, dims: Sequence[str]) -> bytes:
        shape = message({1: [message({2: dim}) for dim in dims]})
        return message({1: name, 2: message({1: message({1: kind, 2: shape})})})


def written(file_name: str, content: bytes) -> bytes:
    """Return the graph over the weights in *content*, which is the file called *file_name*.

    It takes `input_ids` and `attention_mask` (1 for a token, 0 behind the last), int64 of shape
    (texts, tokens), and gives float32 of shape (texts, tokens, 384).  *content* is taken
    for what its sha256 says it is.
    """
    found = tensors(content)
    graph = _Graph(file_name, found)
    hidden = _embedded(graph)
    mask = graph.node("Cast", "attention_mask", to=_INT32)
    for layer, own in enumerate(products(found)):
        hidden = _layer(graph, layer, own, hidden, mask)
    return graph.model(["input_ids", "attention_mask"], hidden)


def products(found: Sequence[Tensor]) -> list[dict[str, str]]:
    """Return what the weights are called by which each layer multiplies."""
    names = [one.name.removesuffix("_q") for one in found if one.kind == _INT8]
    own = [name for name in names if name.startswith("val_")]
    size = len(_PRODUCTS)
    return [dict(zip(_PRODUCTS, own[size * n :][:size], strict=True)) for n in range(LAYERS)]


def _embedded(graph: _Graph) -> str:
    """Add what stands for a token, for its place and for a text as such; normalise that."""
    base = "inner.embeddings."
    words = graph.unfolded(f"{base}word_embeddings.weight", rows="input_ids")
    width = graph.node("Shape", "input_ids", start=1, end=2)
    zero, one = graph.whole("zero", 0), graph.whole("one", 1)
    places = graph.node(
        "Slice", graph.unfolded(f"{base}position_embeddings.weight"), zero, width, zero
    )
    kinds = graph.weight(f"{base}token_type_embeddings.weight")
    first = graph.node("Slice", kinds, zero, one, zero)
    total = graph.node("Add", graph.node("Add", words, first), places)
    gain, bias = (graph.weight(f"{base}LayerNorm.{part}") for part in ("weight", "bias"))
    return graph.node("LayerNormalization", total, gain, bias, epsilon=EPSILON, axis=-1)


def _layer(graph: _Graph, layer: int, products: dict[str, str], hidden: str, mask: str) -> str:
    """Return what one layer of the encoder makes of *hidden*."""
    base = f"inner.encoder.layer.{layer}."
    parts = ("query", "key", "value")
    weights = [graph.unfolded(products[part]) for part in parts]
    biases = [graph.weight(f"{base}attention.self.{part}.bias") for part in parts]
    attended = graph.node(
        "Attention",
        hidden,
        graph.node("Concat", *weights, axis=1),
        graph.node("Concat", *biases, axis=0),
        mask,
        domain=_FUSED,
        num_heads=HEADS,
    )
    out = graph.node("MatMul", attended, graph.unfolded(products["out"]))
    hidden = _added(graph, f"{base}attention.output.", out, hidden)
    up = graph.node("MatMul", hidden, graph.unfolded(products["up"]))
    wide = graph.node("BiasGelu", up, graph.weight(f"{base}intermediate.dense.bias"), domain=_FUSED)
    down = graph.node("MatMul", wide, graph.unfolded(products["down"]))
    return _added(graph, f"{base}output.", down, hidden)


def _added(graph: _Graph, base: str, new: str, hidden: str) -> str:
    """Add what is new and its bias to what was there, and normalise the sum."""
    names = ("LayerNorm.weight", "LayerNorm.bias", "dense.bias")
    gain, shift, bias = (graph.weight(base + name) for name in names)
    return graph.node(
        "SkipLayerNormalization", new, hidden, gain, shift, bias, domain=_FUSED, epsilon=EPSILON
    )
