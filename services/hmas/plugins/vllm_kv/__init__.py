"""KV transfers in the order of their deadlines, inside vLLM's own NIXL connector: `HmasNixlConnector` in `connector`.

Stock NIXL over TCP moves what one engine reads from another in the order in which it was asked for: a prompt due
in a second waits for all that came before it. Here each read is cut into chunks, and the next chunk is that of the read
which is due first. Blocks, leases, failures and notifications stay vLLM's. This package imports nothing of ours but
itself.
"""
