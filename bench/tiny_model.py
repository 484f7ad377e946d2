"""A vision-language model with random weights, small enough to be written by a test: a llama text model and a CLIP
projector as GGUF files, under 1 MB together. Its vocabulary has the words of the built-in rubrics, so that a question
is about as long as it is for a real model.

The first number of every hidden state is the same large constant, so that a row of the output matrix can hold a bias:
`biases` makes a token likely or unlikely whatever the question is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

import editjudge.rubrics

WIDTH = 32
LAYERS = 1
HEADS = 2
FEED_FORWARD = 64
CONTEXT = 65_536
VISION_WIDTH = 32
VISION_FEED_FORWARD = 64
IMAGE_SIZE = 56
PATCH = 14
_CONSTANT = 8.0
"""The first number of each embedding; the others are about 1."""

SPECIALS = ("<unk>", "<s>", "</s>")
PIECES = (
    *(
        " the",
        " and",
        " is",
        " of",
        " picture",
        " edit",
        " colour",
        " light",
        " same",
        " change",
        " shadow",
        " region",
    ),
    *(
        '":',
        '": ',
        '", "',
        '"}',
        '{"',
        "}}",
        "10",
        "100",
        "5.",
        " 1",
        " 2",
        " 3",
        " 4",
        " 5",
        " 10",
        "\n\n",
        "\n- ",
    ),
)
_RUBRICS = Path(editjudge.rubrics.__file__).parent
_TEMPLATE = "{% for m in messages %}{{ '<s>' if loop.first }}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
_LIKELY = {
    '"': 3.5,
    '": ': 2.0,
    " the": 2.0,
    " and": 2.0,
    " is": 2.0,
    " of": 1.5,
    " picture": 1.5,
    " edit": 1.5,
}
"""So that words are separated and strings end: uniform noise would fill the context with one word."""


def vocabulary() -> list[str]:
    """Specials, every byte (as one character), then pieces of text, of which the tokenizer takes the longest."""
    texts = [path.read_text() for path in sorted(_RUBRICS.glob("builtin/*.yaml"))]
    words = {f" {word}" for text in texts for word in re.findall(r"[A-Za-z]{3,}", text)}
    return [*SPECIALS, *map(chr, range(256)), *dict.fromkeys((*PIECES, *sorted(words)))]


def _escaped(piece: str) -> str:
    """As this tokenizer's vocabulary is written."""
    return "".join(
        c if 32 <= ord(c) < 127 and c != "\\" else f"\\x{ord(c):02x}" for c in piece
    )


def write(
    folder: Path,
    *,
    seed: int = 0,
    biases: Mapping[str, float] | None = None,
    flat: bool = False,
) -> tuple[Path, Path]:
    """The text model and the projector, in a folder of their own; the same seed gives the same bytes.

    The logits of a `flat` model are its biases at every place, whatever was asked and written before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    model = folder / "tiny.gguf"
    projector = folder / "mmproj-tiny.gguf"
    _write_text(model, rng, {**_LIKELY, **(biases or {})}, flat)
    _write_projector(projector, rng)
    return model, projector


def logits(biases: Mapping[str, float]) -> dict[str, float]:
    """Of a flat model, by token."""
    tokens = vocabulary()
    column = _biases(
        tokens, {**_LIKELY, **biases}, _CONSTANT / (_CONSTANT**2 / WIDTH) ** 0.5
    )
    normed = np.float32(_CONSTANT / (_CONSTANT**2 / WIDTH + 1e-5) ** 0.5)
    return dict(zip(tokens, (column * normed).tolist(), strict=True))


def _biases(
    tokens: list[str], biases: Mapping[str, float], normed: float
) -> NDArray[np.float32]:
    """The first column of the output matrix, which meets the constant."""
    column = np.zeros(len(tokens), np.float32)
    odd = [
        number
        for number, token in enumerate(tokens)
        if len(token) == 1 and not 32 <= ord(token) < 127
    ]
    column[odd] = -2.0  # bytes that are no text are rare, as in a trained model
    for piece, bias in biases.items():
        column[tokens.index(piece)] = bias / normed
    return column


def _write_text(
    path: Path, rng: np.random.Generator, biases: Mapping[str, float], flat: bool
) -> None:
    tokens = vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    # the longest piece that fits, without merges or scores
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list([*SPECIALS, *map(_escaped, tokens[len(SPECIALS) :])])
    kinds = [gguf.TokenType.CONTROL] * len(SPECIALS)
    writer.add_token_types(
        [*kinds, *[gguf.TokenType.NORMAL] * (len(tokens) - len(kinds))]
    )
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(_TEMPLATE)

    embeddings = _random(rng, len(tokens), WIDTH)
    embeddings[:, 0] = _CONSTANT
    output = _random(rng, len(tokens), WIDTH, scale=1 / WIDTH**0.5)
    # After the norm the constant is about _CONSTANT / sqrt(mean square).
    normed = _CONSTANT / ((_CONSTANT**2 + (0 if flat else WIDTH - 1)) / WIDTH) ** 0.5
    output[:, 0] = _biases(tokens, biases, normed)
    if flat:
        embeddings[:, 1:] = output[:, 1:] = 0.0
    writer.add_tensor("token_embd.weight", embeddings.astype(np.float16))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    # With weights in half precision the engine would round what they are multiplied with.
    writer.add_tensor("output.weight", output if flat else output.astype(np.float16))
    for layer in range(LAYERS):
        for name, rows, columns in (
            *((f"attn_{part}", WIDTH, WIDTH) for part in ("q", "k", "v", "output")),
            *(
                ("ffn_gate", FEED_FORWARD, WIDTH),
                ("ffn_up", FEED_FORWARD, WIDTH),
                ("ffn_down", WIDTH, FEED_FORWARD),
            ),
        ):
            weight = _random(rng, rows, columns, scale=0.5 / columns**0.5)
            if name in ("attn_output", "ffn_down"):
                weight[slice(None) if flat else 0] = (
                    0.0  # the constant stays what it is
                )
            writer.add_tensor(f"blk.{layer}.{name}.weight", weight)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(WIDTH, np.float32))
    _finish(writer)


def _write_projector(path: Path, rng: np.random.Generator) -> None:
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("mlp")
    writer.add_vision_image_size(IMAGE_SIZE)
    writer.add_vision_patch_size(PATCH)
    writer.add_vision_embedding_length(VISION_WIDTH)
    writer.add_vision_feed_forward_length(VISION_FEED_FORWARD)
    writer.add_vision_projection_dim(WIDTH)
    writer.add_vision_head_count(2)
    writer.add_vision_block_count(2)
    writer.add_vision_attention_layernorm_eps(1e-5)
    writer.add_vision_image_mean([0.5, 0.5, 0.5])
    writer.add_vision_image_std([0.5, 0.5, 0.5])
    writer.add_vision_use_gelu(True)
    writer.add_tensor("v.class_embd", _random(rng, VISION_WIDTH))
    writer.add_tensor(
        "v.patch_embd.weight", _random(rng, VISION_WIDTH, 3, PATCH, PATCH, scale=0.04)
    )
    writer.add_tensor(
        "v.position_embd.weight",
        _random(rng, (IMAGE_SIZE // PATCH) ** 2 + 1, VISION_WIDTH),
    )
    _add_norm(writer, "v.pre_ln")
    for layer in range(2):
        for name, rows, columns in (
            *(
                (f"attn_{part}", VISION_WIDTH, VISION_WIDTH)
                for part in ("q", "k", "v", "out")
            ),
            ("ffn_down", VISION_FEED_FORWARD, VISION_WIDTH),
            ("ffn_up", VISION_WIDTH, VISION_FEED_FORWARD),
        ):
            _add_linear(writer, rng, f"v.blk.{layer}.{name}", rows, columns)
        _add_norm(writer, f"v.blk.{layer}.ln1")
        _add_norm(writer, f"v.blk.{layer}.ln2")
    _add_linear(writer, rng, "mm.0", WIDTH, VISION_WIDTH)
    _add_linear(writer, rng, "mm.2", WIDTH, WIDTH)
    _finish(writer)


def _add_linear(
    writer: gguf.GGUFWriter,
    rng: np.random.Generator,
    name: str,
    rows: int,
    columns: int,
) -> None:
    writer.add_tensor(
        f"{name}.weight", _random(rng, rows, columns, scale=1 / columns**0.5)
    )
    writer.add_tensor(f"{name}.bias", np.zeros(rows, np.float32))


def _add_norm(writer: gguf.GGUFWriter, name: str) -> None:
    writer.add_tensor(f"{name}.weight", np.ones(VISION_WIDTH, np.float32))
    writer.add_tensor(f"{name}.bias", np.zeros(VISION_WIDTH, np.float32))


def _random(
    rng: np.random.Generator, *shape: int, scale: float = 1.0
) -> NDArray[np.float32]:
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
