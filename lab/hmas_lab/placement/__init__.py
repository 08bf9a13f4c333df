"""Published ways to place models on cards, as baselines of plans, with the workloads that they were judged on."""
