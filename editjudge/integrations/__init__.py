"""editjudge inside other tools: Inspect and pytest."""
