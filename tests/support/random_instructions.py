"""Random instructions of a warp: as actions of the scoreboard's twin, and as lines of a trace."""


def random_actions(rng, count, registers):
    """Actions of the twin, and their lines."""
    actions, lines = [], []
    for k in range(count):
        pc = f"{16 * k:04x} ffffffff"
        name = rng.choice(["load", "add", "store", "copy", "commit", "depbar"], p=[0.45, 0.2, 0.1, 0.15, 0.05, 0.05])
        dst = int(rng.integers(4, registers))
        first = int(rng.integers(4, registers))
        width = int(rng.choice([4, 8, 16]))
        token = {4: "", 8: ".64", 16: ".128"}[width]
        if name == "load":
            actions.append((name, dst, width // 4, [(first, 2)]))
            lines.append(f"{pc} 1 R{dst} LDG.E{token} 1 R{first} {width} 1 0x7f4000000000 {width} 0 ")
        elif name == "add":
            actions.append((name, dst, 1, [(first, 1)]))
            lines.append(f"{pc} 1 R{dst} IADD3 1 R{first} 0 0 ")
        elif name == "store":
            actions.append((name, None, 0, [(2, 2), (first, width // 4)]))
            lines.append(f"{pc} 0 STG.E{token} 2 R2 R{first} {width} 1 0x7f4000000000 {width} 0 ")
        elif name == "copy":
            actions.append((name, None, 0, [(first, 1), (2, 2)]))
            lines.append(f"{pc} 0 LDGSTS.E.128 2 R{first} R2 16 1 0x7f4000000000 16 0 ")
        elif name == "commit":
            actions.append((name, None, 0, []))
            lines.append(f"{pc} 0 LDGDEPBAR 0 0 0 ")
        else:
            latest = int(rng.integers(0, 3))
            actions.append((name, None, 0, [(latest, 0)]))
            lines.append(f"{pc} 0 DEPBAR.LE 0 0 {latest} ")
    return actions, lines
