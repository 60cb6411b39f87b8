//! Exact decimal numbers with a unit: no floating point, so no NaN, no infinity, no rounding surprises.

/// Why a quantity could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Problem {
    /// No digits at the beginning.
    NotANumber,
    /// A sign.
    Negative,
    /// More digits than any allowed value has.
    TooLong,
}

impl Problem {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::NotANumber => "does not begin with a decimal number",
            Self::Negative => "is negative",
            Self::TooLong => "has too many digits",
        }
    }
}

/// A non-negative decimal number and the text behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quantity<'a> {
    whole: u128,
    /// `fraction / 10^fraction_digits` is added to `whole`.
    fraction: u128,
    fraction_digits: u32,
    /// What follows the number, unchanged.
    pub(crate) unit: &'a str,
}

/// More digits than this cannot be a meaningful value; it also keeps every product within u128.
const MAX_DIGITS: usize = 15;

impl<'a> Quantity<'a> {
    /// Reads `12`, `1.5`, `.5` is refused.
    pub(crate) fn split(text: &'a str) -> Result<Self, Problem> {
        if text
            .strip_prefix('-')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        {
            return Err(Problem::Negative);
        }
        let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
        let whole_len = digits(text);
        if whole_len == 0 {
            return Err(Problem::NotANumber);
        }
        let (whole, mut rest) = text.split_at(whole_len);
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let len = digits(after);
            if len == 0 {
                return Err(Problem::NotANumber);
            }
            (fraction, rest) = after.split_at(len);
        }
        if whole.len() > MAX_DIGITS || fraction.len() > MAX_DIGITS {
            return Err(Problem::TooLong);
        }
        let number = |s: &str| s.bytes().fold(0u128, |n, b| n * 10 + u128::from(b - b'0'));
        Ok(Self {
            whole: number(whole),
            fraction: number(fraction),
            fraction_digits: u32::try_from(fraction.len()).unwrap_or(0),
            unit: rest,
        })
    }

    /// The number times `numerator / denominator`, rounded down.
    pub(crate) fn times(&self, numerator: u128, denominator: u128) -> u128 {
        let scale = 10u128.pow(self.fraction_digits);
        (self.whole * scale + self.fraction) * numerator / (scale * denominator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_splits_into_number_and_unit_or_is_refused() {
        let q = Quantity::split("1.5ms").unwrap();
        assert_eq!((q.times(1_000_000, 1), q.unit), (1_500_000, "ms"));
        assert_eq!(Quantity::split("10").unwrap().times(1, 8), 1);
        assert_eq!(Quantity::split("-1"), Err(Problem::Negative));
        for bad in [
            "", "ms", "-x", "--1", "NaN", "inf", ".5", "+1", "1.", " 1", "1.x",
        ] {
            assert_eq!(Quantity::split(bad), Err(Problem::NotANumber), "{bad}");
        }
        assert_eq!(
            Quantity::split("99999999999999999999s"),
            Err(Problem::TooLong)
        );
    }
}
