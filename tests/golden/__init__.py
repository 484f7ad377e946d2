"""Golden files: today's results, held to the last digit and byte."""
