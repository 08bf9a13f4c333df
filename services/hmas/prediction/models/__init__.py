"""The models that predict a request's cost: CatBoost forests for known hardware, otherwise a linear profile."""
