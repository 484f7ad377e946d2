"""What needs torch: the metrics are those of torchmetrics, and CLIP and DINO are read from checkpoints on disk.

Run by `make test-torch`, in an environment of its own. The checkpoints are made here, tiny and with random weights.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
import torchmetrics.functional.image as defined
import transformers

from editjudge.edit import Edit
from editjudge.errors import UsageError
from editjudge.media.cache import DigestCache, ImageCache, KnownImage
from editjudge.rubrics.files import load
from editjudge.running.asker import judge_task
from editjudge.running.plan import QuestionSettings, works
from editjudge.vision.checkpoints import Checkpoint, prepare
from editjudge.vision.metrics import MetricPair, Metrics, unit

WORDS = ["a", "red", "blue", "car", "on", "the", "road"]


def scene(seed: int) -> Any:
    """Soft shapes, the same for the same seed."""
    noise = np.random.default_rng(seed).integers(0, 256, (12, 14, 3), np.uint8)
    return cv2.resize(noise, (230, 200), interpolation=cv2.INTER_CUBIC)


def noisy(picture: Any, strength: float) -> Any:
    noise = np.random.default_rng(1).normal(0, strength, picture.shape)
    return np.clip(picture + noise, 0, 255).astype(np.uint8)


# --- torchmetrics ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [1, 10, 80])
def test_l1_psnr_ssim_and_ms_ssim_are_those_of_torchmetrics(strength: float) -> None:
    a = scene(0)
    b = noisy(scene(0), strength)
    pair = MetricPair(a, b)
    x, y = (
        torch.from_numpy(unit(picture).transpose(2, 0, 1)[None].copy())
        for picture in (a, b)
    )
    assert pair.value("l1") == pytest.approx(float((x - y).abs().mean()), rel=1e-12)
    assert pair.value("psnr") == pytest.approx(
        float(defined.peak_signal_noise_ratio(x, y, data_range=1.0)), rel=1e-6
    )
    _, local = defined.structural_similarity_index_measure(
        x, y, data_range=1.0, return_full_image=True
    )
    # without the border
    assert pair.value("ssim") == pytest.approx(
        float(local[..., 5:-5, 5:-5].mean()), abs=1e-6
    )
    theirs = defined.multiscale_structural_similarity_index_measure(
        x, y, data_range=1.0
    )
    assert pair.value("ms_ssim") == pytest.approx(float(theirs), abs=1e-6)


# --- checkpoints ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clip")
    torch.manual_seed(0)
    size = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    vocabulary = {
        token: n
        for n, token in enumerate(
            ["<|startoftext|>", "<|endoftext|>", *"abcdefghijklmnopqrstuvwxyz"]
        )
    }
    vocabulary |= {
        f"{letter}</w>": len(vocabulary) + n
        for n, letter in enumerate("abcdefghijklmnopqrstuvwxyz")
    }
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokens = {
        "vocab_size": len(vocabulary),
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 1,
    }
    config = transformers.CLIPConfig(
        text_config={**size, **tokens, "max_position_embeddings": 77},
        vision_config={**size, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    transformers.CLIPModel(config).save_pretrained(folder)
    transformers.CLIPTokenizer(
        str(folder / "vocab.json"), str(folder / "merges.txt")
    ).save_pretrained(folder)
    prepared = {
        "size": {"shortest_edge": 32},
        "crop_size": {"height": 32, "width": 32},
        "do_center_crop": True,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(prepared))
    return folder


@pytest.fixture(scope="module")
def dino(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dino")
    torch.manual_seed(1)
    size = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    transformers.ViTModel(
        transformers.ViTConfig(**size, image_size=32, patch_size=8)
    ).save_pretrained(folder)
    half = [0.5, 0.5, 0.5]
    prepared = {
        "size": {"height": 32, "width": 32},
        "image_mean": half,
        "image_std": half,
        "do_center_crop": False,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(prepared))
    return folder


def encoded(picture: Any) -> bytes:
    return bytes(cv2.imencode(".png", picture[..., ::-1])[1].tobytes())


def judge(edit: Edit, **networks: Path) -> Any:
    metrics = Metrics({kind: str(place) for kind, place in networks.items()})
    digests = DigestCache()

    def look(edit: Edit, role: str) -> KnownImage | None:
        source = getattr(edit, role)
        return None if source is None else digests.look_up(source)

    (work,) = works([edit], QuestionSettings([load("metrics_clip")]), metrics, look)
    return asyncio.run(judge_task(metrics, work, ImageCache()))


def test_every_cosine_is_that_of_the_features_of_the_checkpoint(
    clip: Path, dino: Path
) -> None:
    before = scene(0)
    after = scene(1)
    captions = {"source_caption": "a red car", "target_caption": "a blue car"}
    edit = Edit(
        "e",
        encoded(before),
        encoded(after),
        "make it blue",
        encoded(after),
        metadata=captions,
    )
    found = judge(edit, clip=clip, dino=dino)
    assert found.status == "ok" and not found.abstained
    model = transformers.CLIPModel.from_pretrained(clip).eval()
    tokenizer = transformers.CLIPTokenizer.from_pretrained(clip)
    how = json.loads((clip / "preprocessor_config.json").read_text())
    with torch.inference_mode():
        pixels = torch.from_numpy(
            np.stack([prepare(picture, how) for picture in (before, after)])
        )
        whole = model(
            **tokenizer(list(captions.values()), padding=True, return_tensors="pt"),
            pixel_values=pixels,
        )
        pictures, texts = (
            torch.nn.functional.normalize(x, dim=-1)
            for x in (whole.image_embeds, whole.text_embeds)
        )
    cosine = torch.nn.functional.cosine_similarity
    wanted = {
        "clip_image": pictures[0] @ pictures[1],
        "clip_text": pictures[1] @ texts[1],
        "clip_direction": cosine(pictures[1] - pictures[0], texts[1] - texts[0], dim=0),
        "clip_image_truth": torch.tensor(1.0),
        "dino_image_truth": torch.tensor(1.0),
    }
    for factor, value in wanted.items():
        assert found.scores[factor] == pytest.approx(float(value), abs=1e-4), factor
    assert -1 <= found.scores["dino_image"] < 0.9999


def test_pictures_are_prepared_as_the_processor_of_transformers_does_it() -> None:
    pillow = (
        getattr(transformers, "CLIPImageProcessorPil", None)
        or transformers.CLIPImageProcessor
    )
    settings = {"size": {"shortest_edge": 64}, "crop_size": {"height": 64, "width": 64}}
    theirs = pillow(**settings)(scene(0), return_tensors="np")["pixel_values"][0]
    assert (
        np.abs(prepare(scene(0), {**settings, "do_center_crop": True}) - theirs).max()
        < 0.02
    )


def test_without_captions_a_checkpoint_or_a_ground_truth_there_is_a_reason_and_no_number(
    clip: Path,
) -> None:
    found = judge(
        Edit("e", encoded(scene(0)), encoded(scene(1)), "make it blue"), clip=clip
    )
    assert set(found.scores) == {"clip_image"}
    assert (
        "target_caption" in found.abstained["clip_text"]
        and "ground truth" in found.abstained["clip_image_truth"]
    )
    assert "-J dino=FOLDER" in found.abstained["dino_image"]


def test_an_unchanged_output_has_no_direction(clip: Path) -> None:
    captions = {"source_caption": "a red car", "target_caption": "a blue car"}
    found = judge(
        Edit("e", encoded(scene(0)), encoded(scene(0)), metadata=captions), clip=clip
    )
    assert "no direction" in found.abstained["clip_direction"]
    assert found.scores["clip_image"] == pytest.approx(1.0)


def test_other_weights_and_other_captions_make_another_key(
    clip: Path, dino: Path
) -> None:
    rubric = load("metrics_clip")
    edit = Edit("e", metadata={"target_caption": "a blue car"})
    one = Metrics({"clip": str(clip)})
    two = Metrics({"clip": str(clip), "dino": str(dino)})
    identities = [
        one.identity(edit, rubric, 0),
        two.identity(edit, rubric, 0),
        one.identity(Edit("e"), rubric, 0),
    ]
    assert len({json.dumps(identity, sort_keys=True) for identity in identities}) == 3


def test_a_place_without_a_checkpoint_is_named_and_nothing_is_downloaded(
    tmp_path: Path, dino: Path
) -> None:
    with pytest.raises(UsageError, match=r"config\.json"):
        Checkpoint("clip", str(tmp_path))
    with pytest.raises(UsageError, match="nothing is downloaded"):
        Checkpoint("clip", "nobody/nothing")
    with pytest.raises(UsageError, match="no features of texts"):
        Checkpoint("clip", str(dino)).see(scene(0))
