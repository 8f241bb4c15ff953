"""`python -m bench.micro policy`: the cost of large policies, shape by shape."""

import sys

from bench.micro.policy import main

sys.exit(main())
