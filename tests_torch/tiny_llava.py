"""A vision-language model with random weights for `transformers serve`: LLaVA's architecture, under 1 MB. Its processor
needs no torchvision. It has a token for each byte, so that a question is a few thousand tokens long."""

from __future__ import annotations

from pathlib import Path

import tokenizers
import torch
import transformers

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {% for part in m.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}\n{% endfor %}assistant:"
)
SIDE = 28
PATCH = 14


def write(folder: Path, *, stops: bool = True) -> Path:
    """The folder, as a name of a model that the server takes. One that does not stop never writes the end of a text."""
    torch.manual_seed(0)
    tokenizer = _tokenizer()
    text = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=16_384,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    vision = transformers.CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=SIDE,
        patch_size=PATCH,
    )
    config = transformers.LlavaConfig(
        text_config=text,
        vision_config=vision,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
    )
    model = transformers.LlavaForConditionalGeneration(config)
    # Where any of twelve tokens of about 260 ends an answer, it ends after some twenty.
    ends = [tokenizer.eos_token_id, *range(100, 112)] if stops else None
    model.generation_config = transformers.GenerationConfig(
        do_sample=True, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)
    pillow = (
        getattr(transformers, "CLIPImageProcessorPil", None)
        or transformers.CLIPImageProcessor
    )
    pictures = pillow(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}
    )
    processor = transformers.LlavaProcessor(
        image_processor=pictures,
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        chat_template=TEMPLATE,
        num_additional_image_tokens=1,
    )
    processor.save_pretrained(folder)
    return folder


def _tokenizer() -> transformers.PreTrainedTokenizerFast:
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = ["<pad>", "</s>", "<image>", *alphabet]
    plain = tokenizers.Tokenizer(
        tokenizers.models.BPE({word: n for n, word in enumerate(words)}, [])
    )
    plain.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain,
        pad_token="<pad>",
        eos_token="</s>",
        additional_special_tokens=["<image>"],
    )
