"""How long does a training step take? The same as `highrank bench step`.

python benchmarks/step.py                              the paper's table of slowdowns on a GPU
python benchmarks/step.py --recipes ptb-softmax,ptb-mos --plain
"""

import sys

from highrank.__main__ import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench", "step"]
    main()
