"""How the gateway agent reacts to each event. They share the state of `hmas.gateway.agent.state`."""
