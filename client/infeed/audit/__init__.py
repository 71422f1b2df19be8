"""Delivery audits: counts of every sample id of a pipeline, over ranks and epochs.

from infeed.audit import audit

result = audit("127.0.0.1:7470", "photos", world_size=3, epochs=2)
assert result.exact, result.findings()
"""

from infeed.audit.counter import DeliveryCounter
from infeed.audit.report import AuditReport, AuditRun
from infeed.audit.run import MAX_RANKS, Progress, audit

__all__ = ["MAX_RANKS", "AuditReport", "AuditRun", "DeliveryCounter", "Progress", "audit"]
