"""The figures that philorag promises, measured: `python -m benchmarks [NAME...]`, or `make bench`."""
