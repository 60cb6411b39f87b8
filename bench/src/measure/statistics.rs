//! What may be said of a few runs: mean, standard deviation, 95 % confidence interval
//! of the mean by Student's t, and t-tests of two queues (SFDPS §5 compares its 30 runs by
//! a t-test, too).

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Confidence of all intervals.
pub const CONFIDENCE: f64 = 0.95;

/// p below which a difference is not taken for chance.
pub const SIGNIFICANCE: f64 = 0.05;

/// Mean, `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Standard deviation of the population that `values` were drawn from (n − 1 in the
/// denominator); `None` of fewer than two.
pub fn deviation(values: &[f64]) -> Option<f64> {
    variance(values).map(f64::sqrt)
}

fn variance(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let degrees = values.len().checked_sub(1).filter(|&d| d > 0)?;
    Some(values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / degrees as f64)
}

/// Several runs of one cell in one figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Number of runs.
    pub runs: usize,
    /// Mean of the runs.
    pub mean: f64,
    /// Standard deviation of single runs; absent with one run.
    pub deviation: Option<f64>,
    /// Half the width of the 95 % confidence interval of the mean; absent with one run.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// Of these runs; `None` without any. The interval assumes that the runs are
    /// independent and that their means are about normally distributed.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mean = mean(values)?;
        let deviation = deviation(values);
        let half_width = deviation.and_then(|deviation| {
            let runs = values.len() as f64;
            Some(quantile(runs - 1.0)? * deviation / runs.sqrt())
        });
        Some(Self {
            runs: values.len(),
            mean,
            deviation,
            half_width,
        })
    }
}

/// The t that a variable of so many degrees of freedom exceeds, either side, with a
/// probability of 5 %.
fn quantile(degrees: f64) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, degrees).ok()?;
    Some(t.inverse_cdf(0.5 + CONFIDENCE / 2.0))
}

/// A t-test: do two queues differ in the mean?
///
/// Runs are counts of ADUs in %: `step` is what one ADU is of that. Rounding to whole ADUs
/// alone has a variance of step²/12, and no queue's runs are believed to vary less: two
/// runs that differ by one frame each prove nothing, thirty do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Mean of the first − mean of the second.
    pub mean: f64,
    /// Half the width of its 95 % confidence interval.
    pub half_width: f64,
    /// The test's statistic.
    pub t: f64,
    /// Its degrees of freedom.
    pub degrees: f64,
    /// Probability of a difference at least as large, either side, of equal means.
    pub p: f64,
}

impl Difference {
    /// The paired t-test, of runs that correspond: the same traffic with the first queue
    /// and with the second. `None` of fewer than two pairs.
    pub fn paired(pairs: &[[f64; 2]], step: f64) -> Option<Self> {
        let differences: Vec<f64> = pairs.iter().map(|[first, second]| first - second).collect();
        let runs = differences.len() as f64;
        let variance = variance(&differences)?.max(2.0 * rounding(step));
        Self::of(mean(&differences)?, (variance / runs).sqrt(), runs - 1.0)
    }

    /// A difference of the means with this standard error.
    fn of(mean: f64, error: f64, degrees: f64) -> Option<Self> {
        let t = mean / error;
        let distribution = StudentsT::new(0.0, 1.0, degrees).ok()?;
        Some(Self {
            mean,
            half_width: quantile(degrees)? * error,
            t,
            degrees,
            p: 2.0 * distribution.cdf(-t.abs()),
        })
    }

    /// Whether the means differ at the 5 % level.
    pub fn differ(&self) -> bool {
        is_significant(self.p)
    }
}

/// Variance of what rounding to multiples of `step` does.
fn rounding(step: f64) -> f64 {
    step * step / 12.0
}

/// Whether a test with this p rejects at the 5 % level.
pub fn is_significant(p: f64) -> bool {
    p < SIGNIFICANCE
}

/// The p of many tests, in the same order, adjusted by Holm's step-down procedure
/// (Bonferroni's for the least of them): with a probability of 95 % none that is below 5 %
/// then is chance, however the tests depend on each other.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![0.0; p.len()];
    let mut least: f64 = 0.0;
    for (rank, place) in order.into_iter().enumerate() {
        least = least.max(p[place] * (p.len() - rank) as f64).min(1.0);
        adjusted[place] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance, "{a} is not {b}");
    }

    /// R's `sleep`: extra hours of sleep with two drugs, ten patients each (Student 1908).
    const SLEEP_1: [f64; 10] = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
    const SLEEP_2: [f64; 10] = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];

    #[test]
    fn quantiles_of_the_t_table() {
        for (degrees, t) in [
            (1.0, 12.706),
            (2.0, 4.303),
            (4.0, 2.776),
            (9.0, 2.262),
            (29.0, 2.045),
            (120.0, 1.980),
        ] {
            near(quantile(degrees).expect("a quantile"), t, 5e-4);
        }
    }

    #[test]
    fn an_estimate_of_sleep() {
        // R: t.test(extra[group == 1]): mean 0.75, interval -0.5297804 .. 2.0297804.
        let estimate = Estimate::of(&SLEEP_1).expect("an estimate");
        near(estimate.mean, 0.75, 1e-12);
        near(estimate.deviation.expect("ten runs"), 1.789010, 1e-6);
        near(estimate.half_width.expect("ten runs"), 1.2797804, 1e-6);
        assert_eq!(estimate.runs, 10);
    }

    #[test]
    fn few_runs_claim_nothing() {
        assert_eq!(Estimate::of(&[]), None);
        let one = Estimate::of(&[5.0]).expect("an estimate");
        assert_eq!((one.mean, one.deviation, one.half_width), (5.0, None, None));
        assert_eq!(Difference::paired(&[[1.0, 2.0]], 1.0), None);
    }

    #[test]
    fn pairs_of_sleep_differ() {
        // The ten patients are the same. R: t.test(Pair(extra[group == 1], extra[group == 2])
        // ~ 1): t = -4.0621, df = 9, p-value = 0.002833, interval -2.4598858 .. -0.7001142.
        let pairs: Vec<_> = SLEEP_1
            .into_iter()
            .zip(SLEEP_2)
            .map(|(a, b)| [a, b])
            .collect();
        let paired = Difference::paired(&pairs, 0.1).expect("a test");
        near(paired.t, -4.0621, 5e-5);
        near(paired.degrees, 9.0, 0.0);
        near(paired.p, 0.002833, 5e-7);
        near(paired.mean - paired.half_width, -2.4598858, 1e-6);
        near(paired.mean + paired.half_width, -0.7001142, 1e-6);
        assert!(paired.differ());
    }

    #[test]
    fn one_adu_each_in_two_runs_proves_nothing() {
        let differ = |by, runs| {
            let pairs = vec![[50.0, 50.0 + by]; runs];
            Difference::paired(&pairs, 2.0).expect("a test").differ()
        };
        assert!(!differ(2.0, 2));
        assert!(differ(2.0, 5));
        assert!(differ(50.0, 2));
        assert!(!differ(0.0, 30));
    }

    #[test]
    fn holm_as_in_r() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm").
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, wanted) in adjusted.into_iter().zip([0.03, 0.06, 0.06, 0.02]) {
            near(found, wanted, 1e-12);
        }
        assert_eq!(holm(&[0.4, 0.9]), [0.8, 0.9]);
        assert_eq!(holm(&[]), [0.0; 0]);
    }
}
