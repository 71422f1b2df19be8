"""The writer of Mosaic Streaming, without the imports that it does not need.

The package's own `__init__` imports torchvision and transformers.
"""

from __future__ import annotations

import importlib.util
import sys
import types

package = types.ModuleType("streaming")
package.__path__ = importlib.util.find_spec("streaming").submodule_search_locations
sys.modules["streaming"] = package

from streaming.base.format.mds.writer import MDSWriter  # noqa: E402
from streaming.base.util import merge_index  # noqa: E402

__all__ = ["MDSWriter", "merge_index"]
