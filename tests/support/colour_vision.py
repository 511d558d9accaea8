"""How readers with a missing kind of cone see a colour, how different two colours are, and the contrast of a text.

Sources: the matrices are those of Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of
color vision deficiency" (IEEE TVCG 15(6), 2009) for severity 1.0; they act on linear sRGB. The colour difference is
CIEDE2000 as in Sharma, Wu and Dalal (Color Research and Application 30(1), 2005); contrast is that of WCAG 2.1.
"""

import numpy as np

VISIONS = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
"""Kind of vision -> matrix for linear sRGB."""
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
READABLE = 4.5
"""Smallest contrast of a text (WCAG 2.1, AA)."""
CUT = 6 / 29
TURN = 25**7


def linear(colour):
    """Linear sRGB of a text such as `#0072b2`: three numbers from 0 to 1."""
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """From 1 (equal) to 21 (black on white)."""
    low, high = sorted(float(TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def seen(colour, vision):
    """CIE L*a*b* of a colour as readers with this vision see it."""
    ratios = TO_XYZ @ np.clip(VISIONS[vision] @ linear(colour), 0, 1) / TO_XYZ.sum(axis=1)
    x, y, z = np.where(ratios > CUT**3, np.cbrt(ratios), ratios / (3 * CUT**2) + 4 / 29)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(one, other):
    """CIEDE2000 of two colours in L*a*b*. 1 is about the smallest difference that an eye notices side by side."""
    (light_1, a_1, b_1), (light_2, a_2, b_2) = one, other
    bend = 1.5 - 0.5 * np.sqrt(1 / (1 + TURN / max(1e-9, (np.hypot(a_1, b_1) + np.hypot(a_2, b_2)) / 2) ** 7))
    chroma_1, chroma_2 = np.hypot(a_1 * bend, b_1), np.hypot(a_2 * bend, b_2)
    hue_1, hue_2 = (np.degrees(np.arctan2(b, a * bend)) % 360 for a, b in ((a_1, b_1), (a_2, b_2)))
    turned = (hue_2 - hue_1 + 180) % 360 - 180 if chroma_1 * chroma_2 else 0.0
    hue = hue_1 + turned / 2 if chroma_1 * chroma_2 else hue_1 + hue_2
    light, chroma = (light_1 + light_2) / 2, (chroma_1 + chroma_2) / 2
    waves = ((1, 30, -0.17), (2, 0, 0.24), (3, -6, 0.32), (4, 63, -0.20))
    weight = 1 + sum(height * np.cos(np.radians(times * hue - shift)) for times, shift, height in waves)
    lights = (light_2 - light_1) / (1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2))
    chromas = (chroma_2 - chroma_1) / (1 + 0.045 * chroma)
    hues = 2 * np.sqrt(chroma_1 * chroma_2) * np.sin(np.radians(turned / 2)) / (1 + 0.015 * chroma * weight)
    around_blue = np.radians(60 * np.exp(-(((hue % 360 - 275) / 25) ** 2)))
    mixed = -2 * np.sqrt(1 / (1 + TURN / max(1e-9, chroma) ** 7)) * np.sin(around_blue) * chromas * hues
    return float(np.sqrt(lights**2 + chromas**2 + hues**2 + mixed))
