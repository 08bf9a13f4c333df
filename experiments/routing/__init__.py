"""Routing by prefix over several workers and gateways: workloads, the rules of other routers, and what is measured."""
