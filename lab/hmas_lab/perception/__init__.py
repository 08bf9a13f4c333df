"""What makes and measures perception: its corpus, its training, its evaluation."""
