"""Colours of every figure: Okabe and Ito's, which colour-blind readers can tell apart. Heads keep theirs throughout."""

BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#777777"
HEADS = {"softmax": BLUE, "moc": ORANGE, "mos": GREEN}
