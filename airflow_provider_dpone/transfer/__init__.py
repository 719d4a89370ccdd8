"""Arrow streams: exact conversion, ceilings, digest, overlap of reading and sending."""
