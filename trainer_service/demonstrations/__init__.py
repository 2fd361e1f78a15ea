"""Recording demonstrations, and looking into recordings."""
