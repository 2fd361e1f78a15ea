"""Commands of which one end is on another machine."""
