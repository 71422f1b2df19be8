"""Audit of a served pipeline, for example in a training job's test:

    from infeed.audit import audit

    result = audit("127.0.0.1:7470", "photos", world_size=3, epochs=2)
    assert result.exact, result.findings()

An installed package adds the names through the entry point group `infeed.audit`.
"""

from infeed.adapters import added_names

__getattr__, __dir__ = added_names(__name__)
