"""Parts that the benchmark scripts share."""
