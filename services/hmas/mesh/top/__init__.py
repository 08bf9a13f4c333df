"""`hmas top`: a live terminal view. The model is pure (values in, renderable out); the shell subscribes and redraws."""
