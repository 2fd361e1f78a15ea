"""Networks that decide for one agent."""
