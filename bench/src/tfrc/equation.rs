//! The TCP throughput equation (RFC 5348 §3.1), both ways.
//!
//! X = s / (R·√(2bp/3) + t_RTO·3·√(3bp/8)·p·(1 + 32p²)), with b = 1 packet per
//! acknowledgement and t_RTO = 4R, as the RFC recommends.

/// The denominator without R: X = s / (R·f(p)).
fn f(p: f64) -> f64 {
    (2.0 * p / 3.0).sqrt() + 12.0 * (3.0 * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p)
}

/// What a TCP flow would send, bytes/s: packets of `s` bytes, round trips of `r`
/// seconds (> 0), loss events per packet `p` in 0..=1. Without loss there is no
/// bound: infinity.
pub fn rate(s: f64, r: f64, p: f64) -> f64 {
    if p <= 0.0 {
        return f64::INFINITY;
    }
    s / (r * f(p.min(1.0)))
}

/// The loss event rate at which the equation gives `x` bytes/s: what §6.3.1 seeds the
/// history of losses with. Between 10⁻⁸ and 1; exact to 0.01 % (the RFC asks for 5 %).
pub fn loss_event_rate(s: f64, r: f64, x: f64) -> f64 {
    let (mut low, mut high) = (1e-8_f64, 1.0_f64);
    // f grows with p, so the rate falls: halve the interval, on a logarithmic scale.
    while high / low > 1.0001 {
        let middle = (low * high).sqrt();
        if rate(s, r, middle) > x {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low * high).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equation_has_the_published_values() {
        // f(p)·10⁶ as the lookup table of Linux's CCID3 prints it (tfrc_equation.c, v6.12).
        for (p, value) in [(0.0001, 8172.0), (0.002, 37172.0), (0.004, 53499.0)] {
            assert!((f(p) * 1e6 - value).abs() < 1.5, "{p}: {}", f(p) * 1e6);
        }
        // √(0.02/3) = 0.0816497; 12·√0.00375·0.01·1.0032 = 0.0073720; 1460/0.1/0.0890217.
        assert!((rate(1460.0, 0.1, 0.01) - 164_005.0).abs() < 5.0);
        assert_eq!(rate(1460.0, 0.1, 0.0), f64::INFINITY);
    }

    proptest! {
        #[test]
        fn equation_with_more_loss_is_slower_and_inverted_gives_the_loss_back(
            s in 40.0..1500.0f64, r in 0.001..2.0f64, p in 1e-6..0.9f64, more in 1.01..10.0f64,
        ) {
            prop_assert!(rate(s, r, (p * more).min(1.0)) < rate(s, r, p));
            let found = loss_event_rate(s, r, rate(s, r, p));
            prop_assert!((found / p - 1.0).abs() < 0.001, "{found} for {p}");
        }
    }
}
