"""``python -m guideloom_read.verify DIRECTORY``; the function is `guideloom_read.verify`.

Whoever imports this module by its name gets the function, too.
"""

from __future__ import annotations

import sys
from typing import Any

if __name__ == "__main__":
    from guideloom_read._verify_command import main

    sys.exit(main())

from guideloom_read._verify import verify

modules: dict[str, Any] = sys.modules
modules[__name__] = verify
