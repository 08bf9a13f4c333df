"""Routing by prefix over several workers and gateways: its workloads, the rules of other routers, and what is measured."""
