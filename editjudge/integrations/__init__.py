"""Integrations of editjudge into other tools: trainers, Inspect and pytest."""
