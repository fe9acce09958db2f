"""Arrays or a Trace in, a Figure out."""
