"""What makes and measures prediction: its measurements, its training, its evaluation."""
