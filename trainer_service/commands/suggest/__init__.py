"""Settings for an environment without a configuration: a probe of the environment, rules, and a commented YAML."""
