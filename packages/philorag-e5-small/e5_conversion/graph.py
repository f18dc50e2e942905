"""The transformer body as an ONNX graph: from the sum of word and position vectors to the mean over the tokens.

Its linear layers multiply 8-bit activations with 7-bit weights. Every token has its own activation scale, so
that a vector doesn't depend on the texts that share its batch (with one scale a batch, as onnxruntime's own
dynamic quantisation has it, the same text came out at cosine 0.991 to itself). Seven bits, because processors
without VNNI add two products in 16 bits, and 2 * 255 * 63 is the most that fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e5_conversion.container import Container, Floats

__all__ = ["build_body"]

WEIGHT_LIMIT = 63
ACTIVATION_LIMIT = 127
ACTIVATION_ZERO = 128
SMALLEST_SCALE = 1e-9
MASKED = -1e4


class _Graph:
    """Collects nodes and constants under names that are the same in every build."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, name: str, value: NDArray[Any]) -> str:
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def scalar(self, name: str, value: float, kind: type[np.generic] = np.float32) -> str:
        self.constants[name] = numpy_helper.from_array(np.asarray(value, kind), name)
        return name

    def integers(self, *values: int) -> str:
        return self.constant("integers_" + "_".join(map(str, values)), np.array(values, np.int64))

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        output = output or f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output


class _Body:
    """Builds the graph of one container; *quantised* chooses its linear layers."""

    def __init__(self, source: Container, *, quantised: bool) -> None:
        self._source = source
        self._shape = source.shape
        self._quantised = quantised
        self._graph = _Graph()

    def model(self) -> ModelProto:
        graph, shape = self._graph, self._shape
        tokens = self._normalised(
            graph.add("Reshape", "embeddings", graph.integers(-1, shape.hidden)), "emb.ln.w", "emb.ln.b"
        )
        size = graph.add("Shape", "mask")
        self._heads = graph.add("Concat", size, graph.integers(3, shape.heads, shape.hidden // shape.heads), axis=0)
        self._sequences = graph.add("Concat", size, graph.integers(shape.hidden), axis=0)
        hidden = graph.add("Sub", "mask", graph.scalar("one", 1))
        self._bias = graph.add(
            "Unsqueeze", graph.add("Mul", hidden, graph.scalar("masked", -MASKED)), graph.integers(1, 2)
        )
        if self._quantised:
            count = graph.add("Shape", graph.add("ReduceMax", tokens, graph.integers(-1), keepdims=0))
            self._zero = graph.scalar("zero", ACTIVATION_ZERO, np.uint8)
            self._zeros = graph.add("Expand", self._zero, count)
        for layer in range(shape.layers):
            tokens = self._layer(tokens, f"l{layer}.")
        self._pool(tokens)
        return self._finish()

    def _layer(self, tokens: str, prefix: str) -> str:
        graph = self._graph
        attended = self._linear(self._attention(tokens, prefix), prefix + "ao")
        tokens = self._normalised(graph.add("Add", tokens, attended), prefix + "aln.w", prefix + "aln.b")
        inner = graph.add("Gelu", self._linear(tokens, prefix + "fi"))
        outer = self._linear(inner, prefix + "fo")
        return self._normalised(graph.add("Add", tokens, outer), prefix + "oln.w", prefix + "oln.b")

    def _attention(self, tokens: str, prefix: str) -> str:
        graph = self._graph
        projected = graph.add("Reshape", self._linear(tokens, prefix + "q", prefix + "k", prefix + "v"), self._heads)
        query, key, value = (
            graph.add(
                "Transpose",
                graph.add("Gather", projected, graph.scalar(f"index_{part}", part, np.int64), axis=2),
                perm=order,
            )
            for part, order in enumerate(([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        )
        scale = graph.scalar("attention_scale", (self._shape.hidden // self._shape.heads) ** -0.5)
        scores = graph.add("Mul", graph.add("MatMul", query, key), scale)
        weights = graph.add("Softmax", graph.add("Add", scores, self._bias), axis=-1)
        mixed = graph.add("Transpose", graph.add("MatMul", weights, value), perm=[0, 2, 1, 3])
        return graph.add("Reshape", mixed, graph.integers(-1, self._shape.hidden))

    def _linear(self, tokens: str, *names: str) -> str:
        source, name = self._source, names[0]
        biases = [source.floats(part + ".b") for part in names]
        rows = [source.matrix(part + ".w", len(bias)) for part, bias in zip(names, biases, strict=True)]
        weights = np.concatenate(rows).T
        product = self._integer_product if self._quantised else self._float_product
        bias = self._graph.constant(name + ".bias", np.concatenate(biases))
        return self._graph.add("Add", product(tokens, weights, name), bias)

    def _float_product(self, tokens: str, weights: Floats, name: str) -> str:
        return self._graph.add("MatMul", tokens, self._graph.constant(name + ".weights", weights))

    def _integer_product(self, tokens: str, weights: Floats, name: str) -> str:
        graph = self._graph
        scales = np.abs(weights).max(axis=0) / np.float32(WEIGHT_LIMIT)
        packed = graph.constant(name + ".weights", np.rint(weights / scales).astype(np.int8))
        largest = graph.add("ReduceMax", graph.add("Abs", tokens), graph.integers(-1), keepdims=0)
        token_scales = graph.add(
            "Max",
            graph.add("Mul", largest, graph.scalar("step", 1 / ACTIVATION_LIMIT)),
            graph.scalar("smallest_scale", SMALLEST_SCALE),
        )
        quantised = graph.add("QuantizeLinear", tokens, token_scales, self._zeros, axis=0)
        product = graph.add("MatMulInteger", quantised, packed, self._zero)
        columns = graph.add(
            "Mul", graph.add("Cast", product, to=TensorProto.FLOAT), graph.constant(name + ".scales", scales)
        )
        return graph.add("Mul", columns, graph.add("Unsqueeze", token_scales, graph.integers(-1)))

    def _normalised(self, tokens: str, weight: str, bias: str) -> str:
        graph, source = self._graph, self._source
        parameters = (graph.constant(name, source.floats(name)) for name in (weight, bias))
        return graph.add("LayerNormalization", tokens, *parameters, axis=-1, epsilon=self._shape.epsilon)

    def _pool(self, tokens: str) -> None:
        graph = self._graph
        sequences = graph.add("Reshape", tokens, self._sequences)
        visible = graph.add("Mul", sequences, graph.add("Unsqueeze", "mask", graph.integers(2)))
        total = graph.add("ReduceSum", visible, graph.integers(1), keepdims=0)
        count = graph.add("ReduceSum", "mask", graph.integers(1), keepdims=1)
        graph.add("Div", total, count, output="means")

    def _finish(self) -> ModelProto:
        hidden = self._shape.hidden
        inputs = [
            helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["texts", "tokens", hidden]),
            helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["texts", "tokens"]),
        ]
        outputs = [helper.make_tensor_value_info("means", TensorProto.FLOAT, ["texts", hidden])]
        constants = list(self._graph.constants.values())
        graph = helper.make_graph(self._graph.nodes, "multilingual-e5-small", inputs, outputs, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def build_body(source: Container, *, quantised: bool) -> ModelProto:
    """Inputs `embeddings` (texts, tokens, hidden) and `mask` (texts, tokens); output `means` (texts, hidden)."""
    return _Body(source, quantised=quantised).model()
