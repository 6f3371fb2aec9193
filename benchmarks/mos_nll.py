"""How fast is `mos_nll`, and how much memory does it take? The same as `highrank bench mos-nll`.

python benchmarks/mos_nll.py                           Penn Treebank's size on a CPU, all three sizes on a GPU
python benchmarks/mos_nll.py --sizes ptb,wt2 --dtype float32
python benchmarks/mos_nll.py --scaling                 over K, V and N
"""

import sys

from highrank.__main__ import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench", "mos-nll"]
    main()
