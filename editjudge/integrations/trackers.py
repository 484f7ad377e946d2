"""Experiment trackers that `run --log` writes to: MLflow, Weights & Biases and TensorBoard.

A tracker is a function of a run and of the text after the colon of `--log NAME:WHERE`. It returns where the run is now.
Each library reads its own environment variables, such as MLFLOW_TRACKING_URI, MLFLOW_RUN_ID and WANDB_MODE. A tracker
of another package is declared as an entry point of `editjudge.trackers`:

    def log(run: TrackedRun, where: str) -> str:
        for step in run.steps:
            for name, value in step.metrics.items():
                my_tracker.write(name, value, step.step)
        return "my tracker"
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from PIL import Image, ImageOps

from editjudge.redaction import redacted_address
from editjudge.report.tracking import TrackedRun


def log_mlflow(run: TrackedRun, where: str) -> str:
    """Log to MLflow. `where` is a tracking address, such as a server's or `sqlite:///FILE`."""
    import mlflow

    if where:
        mlflow.set_tracking_uri(where)
    with mlflow.start_run(run_name=run.name) as active:
        # Parameters of a run cannot change, and a run with several steps is logged several times.
        mlflow.set_tags({f"editjudge.{name}": text for name, text in run.facts.items()})
        for step in run.steps:
            mlflow.log_metrics(dict(step.metrics), step=step.step)
            captions = {}
            for number, worst in enumerate(step.worst):
                name = f"worst/step-{step.step}/{number}.png"
                mlflow.log_image(worst.image, artifact_file=name)
                captions[name] = worst.caption
            mlflow.log_dict(captions, f"worst/step-{step.step}/captions.json")
    return f"{redacted_address(mlflow.get_tracking_uri())}, run {active.info.run_id}"


def log_wandb(run: TrackedRun, where: str) -> str:
    """Log to Weights & Biases. `where` is the project."""
    import wandb

    # Its metadata would include the command line, which may contain the password of a store, and the machine.
    settings = wandb.Settings(
        console="off",
        disable_git=True,
        save_code=False,
        silent=True,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
    )
    with wandb.init(
        project=where or os.environ.get("WANDB_PROJECT") or "editjudge",
        name=run.name,
        config=dict(run.facts),
        settings=settings,
    ) as active:
        for step in run.steps:
            size = _common_size([w.image for w in step.worst])
            worst = [
                wandb.Image(
                    ImageOps.pad(w.image, size, color="white"), caption=w.caption
                )
                for w in step.worst
            ]
            active.log({**step.metrics, "worst": worst}, step=step.step)
        return active.dir if active.offline else str(active.url)


def _common_size(images: Sequence[Image.Image]) -> tuple[int, int]:
    """Return a size that holds each of these images. W&B displays images of several sizes incorrectly."""
    width = max((image.width for image in images), default=1)
    return width, max((image.height for image in images), default=1)


def log_tensorboard(run: TrackedRun, where: str) -> str:
    """Log to event files of TensorBoard. `where` is their folder; runs in the same folder are one curve."""
    import numpy as np
    from tensorboardX import SummaryWriter

    folder = where or os.path.join("runs", run.label)
    # Files are named by the second: without a suffix, the next run would replace the file of this one.
    with SummaryWriter(folder, filename_suffix=f".{run.label}") as writer:
        for step in run.steps:
            for name, value in step.metrics.items():
                writer.add_scalar(name, value, step.step)
            for number, worst in enumerate(step.worst):
                name = f"worst/{number}"
                pixels = np.asarray(worst.image)
                writer.add_image(name, pixels, step.step, dataformats="HWC")
                writer.add_text(f"{name}/caption", worst.caption, step.step)
        for name, text in run.facts.items():
            writer.add_text(f"facts/{name}", text, run.steps[0].step)
    return folder
