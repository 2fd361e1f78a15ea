"""What runs left behind, read again: curves, comparisons over seeds, and reports."""
