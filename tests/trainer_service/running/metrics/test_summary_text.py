from trainer_service.running.metrics import short_number


def test_numbers_are_short() -> None:
    shown = {
        0.0: "0",
        0.25: "0.25",
        -3.0: "-3",
        150_000.0: "150k",
        2.5e6: "2.5M",
        3e-5: "3e-05",
        1e40: "1e+40",
    }
    assert {value: short_number(value) for value in shown} == shown


def test_numbers_are_shorter_in_three_digits() -> None:
    shown = {
        78_768: "78.8k",
        3_000_000: "3M",
        6.575: "6.58",
        13.694: "13.7",
        999_999: "1M",
        -999.9: "-1k",
        0: "0",
    }
    assert {value: short_number(value, 3) for value in shown} == shown
