"""Several models on one card, and who of them is awake: systems compared in virtual time by jobs on time."""
