"""A backend without a model: what vLLM-like servers do on the wire, and no GPU.

`python -m gateway.demo` runs it; `gateway.demo.app.app` is the ASGI factory. It reads the
same catalog as the gateway and behaves as each model's own backend does, quirks included.
Nothing here knows Django.
"""
