"""Messages to frozen records of arrays, and back."""
