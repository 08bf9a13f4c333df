"""Repeats the evaluation of the Niyama paper (§4) in virtual time, for its tables and figures beside our own."""
