from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlforge_cli.tasks.notation import plain
from rlforge_cli.tasks.numbers import MAX_DIGITS, Number, canonical, is_bare, parse_number
from rlforge_cli.tasks.prose import answer_number, last_number

STATED = {
    # plain
    "81": "81",
    "81.0": "81",
    "81.": "81",
    "81.50": "81.5",
    "007": "7",
    "-0": "0",
    ".5": "0.5",
    "-.5": "-0.5",
    "+7": "7",
    # thousands: Western, Indian, spaced, apostrophes, dots
    "58,500": "58500",
    "1,234,567.80": "1234567.8",
    "2,50,000": "250000",
    "1,00,000": "100000",
    "12,34,56,789": "123456789",
    "12 500": "12500",
    "1 234 567": "1234567",
    "12\u2009500": "12500",
    "12\u00a0500,75": "12500.75",
    "1'000": "1000",
    "5’000": "5000",
    "1.234.567": "1234567",
    # decimal commas
    "45,00": "45",
    "12,50": "12.5",
    "1234,56": "1234.56",
    "2.345,60": "2345.6",
    "1.234.567,89": "1234567.89",
    "2.345": "2.345",
    # currency, percent
    "$34.00.": "34",
    "-$5": "-5",
    "$-5": "-5",
    "US$18": "18",
    "Rs. 250": "250",
    "₹2,50,000": "250000",
    "18 €": "18",
    "USD 18": "18",
    "50¢": "50",
    "35%": "35",
    "35\\%": "35",
    "35％": "35",
    "35 percent": "35",
    "\\$18": "18",
    "$18$": "18",
    # other scripts
    "−7": "-7",
    "–7": "-7",
    "－7": "-7",
    "４２": "42",
    "٤٢": "42",
    "𝟒𝟐": "42",
    "3，000": "3000",
    "4\u200b2": "42",
    "42。": "42",
    "18个": "18",
    "5万": "50000",
    # fractions and mixed numbers
    "3/4": "3/4",
    "6/8": "3/4",
    "6/3": "2",
    "0/5": "0",
    "3 / 4": "3/4",
    "3⁄4": "3/4",
    "¾": "3/4",
    "2¾": "11/4",
    "-½": "-1/2",
    "3 1/4": "13/4",
    "3 and 1/4": "13/4",
    "1.5/2": "3/4",
    "\\frac{3}{4}": "3/4",
    "\\dfrac{3}{4}": "3/4",
    "-\\tfrac{3}{4}": "-3/4",
    "\\frac{-3}{4}": "-3/4",
    "\\frac34": "3/4",
    "1\\frac{1}{2}": "3/2",
    "\\frac{3{,}000}{4}": "750",
    # powers of ten and number words
    "2.5e+3": "2500",
    "1E-2": "0.01",
    "2.5 \\times 10^{3}": "2500",
    "2.5 \\cdot 10^{-3}": "0.0025",
    "2.5×10³": "2500",
    "2.5*10**3": "2500",
    "5 million": "5000000",
    "$1.5 million": "1500000",
    "45k": "45000",
    # dressing, labels and units
    "x = 3": "3",
    "3+4 = 7": "7",
    "Total: $18": "18",
    "The answer is 18": "18",
    "about 7": "7",
    "minus 7": "-7",
    "negative 7": "-7",
    "- 7": "-7",
    "(18)": "18",
    "**18**": "18",
    "_18_": "18",
    '"18"': "18",
    "\\text{19}": "19",
    "19 \\text{ apples}": "19",
    "19\\text{apples}": "19",
    "\\textbf{18}": "18",
    "12{,}500": "12500",
    "12\\,500": "12500",
    "90^\\circ": "90",
    "20 °C": "20",
    "18 cm^2": "18",
    "18 \\text{ m}^2": "18",
    "5kg": "5",
    "5th": "5",
    "18 dollars a day": "18",
    "$18/hour": "18",
    "18 (eighteen)": "18",
    "<b>18</b>": "18",
}

NOT_ONE_NUMBER = [
    *("", " ", ",", ".", "-", "$", "N/A", "seven", "inf", "nan", "x", "\x00", "\ud800"),
    # pairs and lists
    *("0,7", "2,6", "0,125", "3, 4", "5 6", "12  500", "3 and 4", "3 or 4", "18 (not 20)", "x=3, y=4", "5 6/2"),
    *(
        "18\\boxed{18}",
        "18\\boxed{500}",
        "\\boxed{18}500",
        "\\mathbf{12}\\mathbf{500}",
        "\\frac{1}{2}5",
        "½5",
        "18\\quad500",
        "<b>18</b>500",
    ),
    *("3:4", "2:30", "2024-05-06", "1.2.3", "127.0.0.1", "1,2,3", "1,2345", "1,000,00", "123,45,678", "12.34,5"),
    # expressions and variables
    *("6²", "6^2", "6**2", "9**9**9**9", "7^{7^{7^{7^7}}}", "10^3", "6!", "√9", "\\sqrt{9}", "3\\sqrt{2}", "±7", "--7"),
    *("3y", "x = 3y", "3 y", "3π", "3 pi", "3i", "3 squared", "3 and a half", "18 - x", "3 * 6", "3 + 4", "18 = 3*6"),
    *("<7", ">= 7", "x != 7", "x ≠ 7", "not 7", "isn't 7", "18 or so", "more than 18", "0x10", "1_000", "①", "6₂"),
    # zero denominators, broken fractions
    *("3/0", "0/0", "3 1/0", "\\frac{3}{0}", "3/4/5", "\\frac{x}{3}", "\\frac{\\frac{1}{2}}{3}", "0.\\overline{3}"),
    # list numbers and headings
    *("Step 3", "1. Add them", "1) Add", "Day 3: 18"),
    # loops
    *("9" * 5000, "0" * 5000 + "7", "1/" + "9" * 300, "1," * 150, "1e999999", "1e-99", "1e9999999999", "5 " * 180),
]


@pytest.mark.parametrize(("text", "expected"), STATED.items())
def test_reads_a_stated_number(text: str, expected: str) -> None:
    number = parse_number(text)
    assert number is not None
    assert number.text == expected
    assert number.value == Fraction(expected)


@pytest.mark.parametrize("text", NOT_ONE_NUMBER, ids=lambda text: ascii(text[:20]))
def test_refuses_what_is_not_one_number(text: str) -> None:
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        *(
            (text, True)
            for text in ("18", "-7", "$18", "-$18", "18.", "35%", "1,234.5", "12 500", "3/4", "2.5e3", "４２")
        ),
        *(
            (text, False)
            for text in ("18 apples", "x = 3", "**18**", "\\boxed{18}", "(18)", "about 18", "0,7", "", "6²")
        ),
    ],
)
def test_bare_numbers_have_nothing_around_them(text: str, bare: bool) -> None:
    assert is_bare(text) is bare


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("April gave 48 and May gave 24, which makes 72 boxes, altogether.", "72"),
        ("So she owes 15, give or take, and no more.", "15"),
        ("Her bill comes to $34.00.", "34"),
        ("So 10 - 3 = 7 left.", "7"),
        ("It falls to −7 degrees", "-7"),
        ("a change of negative 5", "-5"),
        ("10 minus 7", "-7"),
        ("- 7 apples", "7"),
        ("on the one hand—7", "7"),
        ("She pays 45,00 €.", "45"),
        ("so $x = \\frac{1}{2}$", "1/2"),
        ("I think it is 2.5 \\times 10^3", "2500"),
        ("#18", "18"),
        ("It is **$18**, so **18", "18"),
        # not candidates: ordinals, names, list numbers
        ("She has 18 on the 3rd.", "18"),
        ("18 eggs with H2O from x_1 against COVID-19", "18"),
        ("1. Add 3 and 4.\n2. Done", "4"),
        # unreadable: never replaced by an earlier number
        *(
            (f"There were 18. Now {text}", None)
            for text in (
                "0,7",
                "6²",
                "3y",
                "3 * 4",
                "10-3",
                "2:30",
                "5-7",
                "3/4/2020",
                "9**9",
                "2^10",
                "18_000",
                "1.2.3",
            )
        ),
        *(
            (f"There were 18. Now {text}", None)
            for text in ("3 or 4", "\\sqrt{9}", "\\frac{x}{2}", "±7", "3π", "9" * 5000)
        ),
        ("no number", None),
        ("", None),
    ],
)
def test_last_number_of_prose(text: str, expected: str | None) -> None:
    number = last_number(text)
    assert (number and number.text) == expected


def test_last_number_looks_at_the_end_of_a_long_text_only() -> None:
    assert last_number("5 " + "and so on " * 1000) is None
    assert last_number("and so on " * 1000 + "5") == Number(Fraction(5))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20 was my first guess, without the 3", "20"),
        ("therefore $18, since 3 are gone", "18"),
        ("she has 3, then 15 more, 18 in all", "18"),
        ("3+4=7", "7"),
        ("3 and 4", None),
        ("5 + 6", None),
        ("3y and 7", None),
    ],
)
def test_number_after_the_answer_is(text: str, expected: str | None) -> None:
    number = answer_number(text)
    assert (number and number.text) == expected


def test_plain_changes_spelling_only() -> None:
    assert plain("４２ − ½") == "42 - 1/2"
    assert plain("\\boxed{\\dfrac{3}{4}}") == "3/4"
    assert plain("6²") == "6²"
    assert plain("9**9**9") == "9**9**9"


bounded = st.fractions().filter(lambda x: abs(x.numerator) < 10**MAX_DIGITS and x.denominator < 10**MAX_DIGITS)


@given(bounded, st.booleans())
def test_canonical_form_reads_back_as_itself(value: Fraction, ratio: bool) -> None:
    text = canonical(value, ratio=ratio)
    number = parse_number(text)
    assert number is not None
    assert number.value == value
    assert number.text == text
    assert is_bare(text)


@given(st.integers(-(10**MAX_DIGITS) + 1, 10**MAX_DIGITS - 1), st.integers(0, 30))
def test_decimals_read_exactly(digits: int, places: int) -> None:
    value = Fraction(digits, 10**places)
    text = canonical(value)
    assert "/" not in text
    assert parse_number(text) == Number(value)


@given(st.integers(0, 10**15))
def test_grouping_does_not_change_a_number(value: int) -> None:
    for mark in (",", " ", "\u202f", "'"):
        assert parse_number(f"{value:,}".replace(",", mark)) == Number(Fraction(value))


pieces = st.sampled_from(
    [
        *"0123456789,.-+/ $%²½=*^{}()\\#x\n",
        "\\frac{",
        "\\times 10^",
        "1e",
        " and ",
        "million",
        "４",
        "−",
        "\\text{",
        "**",
    ]
)


@given(st.lists(pieces, max_size=30).map("".join) | st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for number in (parse_number(text), last_number(text), answer_number(text)):
        if number is not None:
            assert parse_number(number.text) == number
