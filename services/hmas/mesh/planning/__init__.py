"""`hmas plan`: which engines a budget of cards should run for the requests that came."""
