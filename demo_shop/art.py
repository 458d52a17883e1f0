"""The pictures of the products, drawn as inline SVG: six shapes, two colours each.

Only presentation attributes are used, no styles and no ids, so a page may show many of them under a strict
Content-Security-Policy. A picture beside the product's name is decoration: wrap it in ``aria-hidden="true"``.
"""

from markupsafe import Markup

SHADOW = '<ellipse cx="100" cy="170" rx="62" ry="7" fill="#2b2420" fill-opacity=".13"/>'
STEAM = (
    '<g fill="none" stroke="#8d7a68" stroke-opacity=".4" stroke-width="3.5" stroke-linecap="round">'
    '<path d="M84 {top}c-7-8 7-13 0-22"/><path d="M101 {high}c-7-9 7-15 0-25"/>'
    '<path d="M118 {top}c-7-8 7-13 0-22"/></g>'
)
LEAF = (
    '<g transform="translate({x} {y}) scale({size})"><path d="M0 14C-13 6-13-8 0-17 13-8 13 6 0 14Z" fill="{fill}"/>'
    '<path d="M0 20V-9M0 6l6-6M0 1l-6-6" fill="none" stroke="{vein}" stroke-width="1.8" stroke-linecap="round"/></g>'
)


def _leaf(x: int, y: int, size: float, fill: str, vein: str) -> str:
    """Place a tea leaf; *fill* and *vein* may name the two colours in braces."""
    return (
        LEAF.replace("{x}", str(x))
        .replace("{y}", str(y))
        .replace("{size}", str(size))
        .replace("{fill}", fill)
        .replace("{vein}", vein)
    )


def _steam(top: int) -> str:
    """Draw steam that rises from the height *top*."""
    return STEAM.replace("{top}", str(top)).replace("{high}", str(top - 6))


TEAPOT = (
    '<path d="M147 92c30-10 44 8 36 28-6 15-23 23-42 25" fill="none" stroke="{colour}" stroke-width="10"'
    ' stroke-linecap="round"/>'
    '<path d="M62 140C36 138 34 112 26 94c-2-5-8-7-10-11l15-5c10 6 12 30 38 34Z" fill="{colour}"/>'
    '<path d="M16 83l15-5" stroke="#2b2420" stroke-opacity=".28" stroke-width="3" stroke-linecap="round"/>'
    '<path d="M52 118c0-34 22-50 50-50s50 16 50 50c0 32-22 50-50 50s-50-18-50-50Z" fill="{colour}"/>'
    '<path d="M53 110q49 16 98 0 2 12 0 22-49 16-98 0-2-12 0-22Z" fill="{accent}"/>'
    '<g fill="{colour}"><circle cx="66" cy="126" r="4"/><circle cx="84" cy="129" r="4"/>'
    '<circle cx="102" cy="130" r="4"/><circle cx="120" cy="129" r="4"/><circle cx="138" cy="126" r="4"/></g>'
    '<path d="M68 74c4-16 18-20 34-20s30 4 34 20q-34 9-68 0Z" fill="{accent}"/>'
    '<path d="M68 74q34 9 68 0" fill="none" stroke="#2b2420" stroke-opacity=".2" stroke-width="3"/>'
    '<circle cx="102" cy="47" r="9" fill="{colour}"/>'
    '<path d="M66 96c4-10 11-15 20-18" fill="none" stroke="#fff" stroke-opacity=".5" stroke-width="5"'
    ' stroke-linecap="round"/>'
)

CUP = (
    _steam(68) + '<ellipse cx="100" cy="160" rx="66" ry="11" fill="{accent}"/>'
    '<ellipse cx="100" cy="157" rx="48" ry="6" fill="#2b2420" fill-opacity=".14"/>'
    '<path d="M142 98c24-6 34 10 26 24-6 11-20 14-34 13" fill="none" stroke="{colour}" stroke-width="9"'
    ' stroke-linecap="round"/>'
    '<path d="M50 84h100c2 42-14 74-50 74S48 126 50 84Z" fill="{colour}"/>'
    '<ellipse cx="100" cy="84" rx="50" ry="10" fill="{accent}"/>'
    '<ellipse cx="100" cy="86" rx="42" ry="6.5" fill="#9a5a22"/>'
    '<path d="M76 85q14-4 26-3" fill="none" stroke="#fff" stroke-opacity=".45" stroke-width="2.5"'
    ' stroke-linecap="round"/>'
    + _leaf(100, 124, 1.0, "{accent}", "{colour}")
    + '<path d="M60 104c1 14 5 25 12 34" fill="none" stroke="#fff" stroke-opacity=".4" stroke-width="5"'
    ' stroke-linecap="round"/>'
)

TIN = (
    '<path d="M54 72v84c0 8 20 14 46 14s46-6 46-14V72Z" fill="{colour}"/>'
    '<path d="M122 80v88c14-2 24-7 24-12V72Z" fill="#2b2420" fill-opacity=".12"/>'
    '<path d="M54 94c0 7 20 12 46 12s46-5 46-12v48c0 7-20 12-46 12s-46-5-46-12Z" fill="{accent}"/>'
    '<path d="M54 99c0 7 20 12 46 12s46-5 46-12M54 137c0 7 20 12 46 12s46-5 46-12" fill="none" stroke="{colour}"'
    ' stroke-width="2"/>'
    + _leaf(100, 130, 0.95, "{colour}", "{accent}")
    + '<path d="M50 50v22c0 8 22 14 50 14s50-6 50-14V50Z" fill="{colour}"/>'
    '<path d="M50 66v6c0 8 22 14 50 14s50-6 50-14v-6c0 8-22 14-50 14s-50-6-50-14Z" fill="#2b2420" fill-opacity=".16"/>'
    '<ellipse cx="100" cy="50" rx="50" ry="13" fill="{colour}"/>'
    '<ellipse cx="100" cy="50" rx="50" ry="13" fill="#fff" fill-opacity=".22"/>'
    '<ellipse cx="100" cy="48" rx="14" ry="5" fill="{accent}"/>'
    '<path d="M62 92v58" stroke="#fff" stroke-opacity=".35" stroke-width="5" stroke-linecap="round"/>'
)

WHISK = (
    '<g fill="none" stroke="{colour}" stroke-width="4.5" stroke-linecap="round">'
    '<path d="M90 102c-26 18-40 36-38 62M93 102c-18 20-26 40-25 66M96 102c-9 22-13 44-12 68M100 102v69"/>'
    '<path d="M110 102c26 18 40 36 38 62M107 102c18 20 26 40 25 66M104 102c9 22 13 44 12 68"/></g>'
    '<path d="M88 104c-12 18-14 36-12 50 8 6 40 6 48 0 2-14 0-32-12-50Z" fill="{colour}" fill-opacity=".45"/>'
    '<path d="M84 34h32l-3 74H87Z" fill="{colour}"/>'
    '<ellipse cx="100" cy="34" rx="16" ry="5" fill="#fff" fill-opacity=".4"/>'
    '<path d="M85 62q15 5 30 0" fill="none" stroke="#2b2420" stroke-opacity=".3" stroke-width="3"/>'
    '<path d="M84 92q16 6 32 0l1 18q-17 6-34 0Z" fill="{accent}"/>'
    '<path d="M84 98q16 6 32 0M84 104q16 6 32 0" fill="none" stroke="#fff" stroke-opacity=".5" stroke-width="1.8"/>'
    '<path d="M91 42l1 44" stroke="#fff" stroke-opacity=".5" stroke-width="4" stroke-linecap="round"/>'
    '<path d="M116 108c12 4 10 14 20 14" fill="none" stroke="{accent}" stroke-width="3" stroke-linecap="round"/>'
)

KETTLE = (
    '<path d="M58 94C50 44 70 26 102 26s52 18 44 68" fill="none" stroke="{accent}" stroke-width="8"'
    ' stroke-linecap="round"/>'
    '<path d="M84 27q18-4 36 0" fill="none" stroke="#2b2420" stroke-opacity=".4" stroke-width="9"'
    ' stroke-linecap="round"/>'
    '<path d="M58 128C40 122 40 106 32 96l-9-5 14-10c14 6 14 22 30 26Z" fill="{colour}"/>'
    '<path d="M48 140c-4-28 18-54 54-54s58 26 54 54c-2 18-18 29-54 29s-52-11-54-29Z" fill="{colour}"/>'
    '<g fill="#fff" fill-opacity=".26"><circle cx="68" cy="118" r="3.4"/><circle cx="85" cy="120" r="3.4"/>'
    '<circle cx="102" cy="121" r="3.4"/><circle cx="119" cy="120" r="3.4"/><circle cx="136" cy="118" r="3.4"/>'
    '<circle cx="62" cy="133" r="3.4"/><circle cx="78" cy="135" r="3.4"/><circle cx="94" cy="136" r="3.4"/>'
    '<circle cx="110" cy="136" r="3.4"/><circle cx="126" cy="135" r="3.4"/><circle cx="142" cy="133" r="3.4"/>'
    '<circle cx="70" cy="149" r="3.4"/><circle cx="86" cy="151" r="3.4"/><circle cx="102" cy="152" r="3.4"/>'
    '<circle cx="118" cy="151" r="3.4"/><circle cx="134" cy="149" r="3.4"/></g>'
    '<path d="M70 92c4-12 16-16 32-16s28 4 32 16q-32 8-64 0Z" fill="{accent}"/>'
    '<circle cx="102" cy="71" r="8" fill="{colour}"/><circle cx="99" cy="68" r="2.5" fill="#fff" fill-opacity=".5"/>'
    '<path d="M58 124c3-12 9-19 18-24" fill="none" stroke="#fff" stroke-opacity=".4" stroke-width="5"'
    ' stroke-linecap="round"/>'
)

BOWL = (
    _steam(78) + '<path d="M78 158h44l4 11H74Z" fill="{accent}"/>'
    '<path d="M34 94h132c2 40-24 68-66 68S32 134 34 94Z" fill="{accent}"/>'
    '<path d="M34 94h132c1 12-1 22-5 31-6 8-12-6-18 2s-8 18-15 14-5-18-13-16-6 22-15 22-6-20-14-20-8 10-14 6-6-12-13-6'
    '-10 6-14 0c-6-10-9-21-9-33Z" fill="{colour}"/>'
    '<ellipse cx="100" cy="94" rx="66" ry="13" fill="{colour}"/>'
    '<ellipse cx="100" cy="96" rx="57" ry="9" fill="#8fa84a"/>'
    '<g fill="#dbe6a8"><circle cx="82" cy="96" r="3"/><circle cx="92" cy="99" r="2"/><circle cx="112" cy="95" r="2.5"/>'
    '<circle cx="121" cy="98" r="1.8"/></g>'
    '<path d="M44 112c3 12 8 21 15 29" fill="none" stroke="#fff" stroke-opacity=".45" stroke-width="5"'
    ' stroke-linecap="round"/>'
)

SHAPES = {"teapot": TEAPOT, "cup": CUP, "tin": TIN, "whisk": WHISK, "kettle": KETTLE, "bowl": BOWL}


def draw(shape: str, colour: str, accent: str) -> Markup:
    """Draw one of the six shapes in two colours; ValueError for an unknown shape."""
    if shape not in SHAPES:
        raise ValueError(f"There is no drawing of {shape!r}; known are {', '.join(SHAPES)}.")
    picture = (
        '<svg class="art" viewBox="0 0 200 200" role="img" focusable="false"><title>Drawing of a {shape}</title>'
        '<circle cx="100" cy="102" r="88" fill="{accent}" fill-opacity=".2"/>' + SHADOW + SHAPES[shape] + "</svg>"
    )
    return Markup(picture).format(shape=shape, colour=colour, accent=accent)  # noqa: S704 - format escapes all it is given
