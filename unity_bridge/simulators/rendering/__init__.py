"""Pictures and films of scenes."""
