"""The models that predict a request's cost: a physical term, and CatBoost's trees on what it leaves."""
