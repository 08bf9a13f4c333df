"""Who predicts a cost: CatBoost forests where they are known to hold, else a linear profile; `table.py` names them."""
