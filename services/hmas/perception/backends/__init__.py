"""Who tags a prompt: the trained model, a language model, or the rules; `table.py` names them."""
