"""The bridge: every simulator, launched or attached, behind one receive and one reply."""
