"""Former home of `editjudge.vision.measured`."""
