"""Parts that several commands share: configurations, environments, settings, trained runs and output."""
