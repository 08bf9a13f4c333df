"""Where a worker finds engines that come and go: a DNS name, a file that is watched, or Kubernetes EndpointSlices."""
