"""What a trained network is worth: metrics and the report."""
