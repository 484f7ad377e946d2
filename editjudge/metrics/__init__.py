"""Metrics as people publish them (L1, PSNR, SSIM ...), as a judge. Needs the extra `measured`."""

from __future__ import annotations

from editjudge.metrics.judge import SPEC, Metrics

__all__ = ["SPEC", "Metrics"]
