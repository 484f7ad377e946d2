"""What strangers hand us, held against any bytes at all: the same targets for Hypothesis (tests) and Atheris (soak)."""
