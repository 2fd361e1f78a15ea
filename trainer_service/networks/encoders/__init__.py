"""From sensors to features: encoders, bodies, memory and normalization."""
