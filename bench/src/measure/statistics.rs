//! What may be said of a few runs: mean, standard deviation, 95 % confidence interval
//! of the mean by Student's t, and Welch's test of two queues (SFDPS §5 compares its
//! 30 runs by a t-test, too).

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Confidence of all intervals.
pub const CONFIDENCE: f64 = 0.95;

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

/// Welch's t-test: do two queues differ in the mean?
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welch {
    /// Mean of the first − mean of the second.
    pub difference: f64,
    /// Half the width of the 95 % confidence interval of the difference.
    pub half_width: f64,
    /// The test's statistic.
    pub t: f64,
    /// Degrees of freedom (Welch–Satterthwaite).
    pub degrees: f64,
    /// Probability of a difference at least as large, either side, of equal means.
    pub p: f64,
}

impl Welch {
    /// Of the runs of two queues. `None` with fewer than two runs of either, or when
    /// neither varies: then the difference is exact and needs no test.
    pub fn of(first: &[f64], second: &[f64]) -> Option<Self> {
        let difference = mean(first)? - mean(second)?;
        let part = |values: &[f64]| Some(variance(values)? / values.len() as f64);
        let (a, b) = (part(first)?, part(second)?);
        let error = (a + b).sqrt();
        if error == 0.0 {
            return None;
        }
        let degrees = (a + b).powi(2)
            / (a * a / (first.len() as f64 - 1.0) + b * b / (second.len() as f64 - 1.0));
        let t = difference / error;
        let distribution = StudentsT::new(0.0, 1.0, degrees).ok()?;
        Some(Self {
            difference,
            half_width: quantile(degrees)? * error,
            t,
            degrees,
            p: 2.0 * distribution.cdf(-t.abs()),
        })
    }

    /// Whether the means differ at the 5 % level.
    pub fn differ(&self) -> bool {
        self.p < 1.0 - CONFIDENCE
    }
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
        assert_eq!(Welch::of(&[1.0], &[2.0, 3.0]), None);
        assert_eq!(Welch::of(&[1.0, 1.0], &[2.0, 2.0]), None);
    }

    #[test]
    fn welch_of_sleep() {
        // R: t.test(extra ~ group, data = sleep): t = -1.8608, df = 17.776,
        // p-value = 0.07939, interval -3.3654832 .. 0.2054832.
        let welch = Welch::of(&SLEEP_1, &SLEEP_2).expect("a test");
        near(welch.t, -1.8608, 5e-5);
        near(welch.degrees, 17.776, 5e-4);
        near(welch.p, 0.07939, 5e-6);
        near(welch.difference, -1.58, 1e-12);
        near(welch.difference - welch.half_width, -3.3654832, 1e-6);
        near(welch.difference + welch.half_width, 0.2054832, 1e-6);
        assert!(!welch.differ());
        let far = SLEEP_2.map(|x| x + 3.0);
        assert!(Welch::of(&SLEEP_1, &far).expect("a test").differ());
    }
}
