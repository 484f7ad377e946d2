"""Ray as a launcher: each worker runs the ordinary engine on its part of the manifest."""
