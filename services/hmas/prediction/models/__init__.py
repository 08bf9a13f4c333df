"""Who predicts a cost: CatBoost forests or a linear profile, and which of them is known to hold for what; `table.py` names them."""
