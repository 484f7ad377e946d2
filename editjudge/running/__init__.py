"""From edits to judgements: plan, pace, engine."""
