"""Runs, which turn edits into judgements: planning, pacing and the engine."""
