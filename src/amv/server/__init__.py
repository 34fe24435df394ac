"""The HTTP gateway: a memory over the network, for agents in any language."""
