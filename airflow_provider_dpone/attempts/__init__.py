"""The attempt protocol, its settling, and the cells that wire ports to engines."""
