"""Analysis of finished runs: curves, comparisons over seeds, and reports."""
