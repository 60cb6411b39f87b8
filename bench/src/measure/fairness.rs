//! How evenly a link was shared.

/// Jain's index (Jain, Chiu, Hawe 1984, DEC-TR-301) of what each of n got: (Σx)² / (n Σx²).
/// 1: all got the same; 1/n: one got all. `None` of nothing; 1 if nobody got anything.
pub fn jain(shares: &[f64]) -> Option<f64> {
    if shares.is_empty() {
        return None;
    }
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    if squares == 0.0 {
        return Some(1.0);
    }
    Some(sum * sum / (shares.len() as f64 * squares))
}

/// Part of all bytes on the wire that were delivered which was that of the competing TCP
/// flows together: of `tcp` bytes of theirs and `media` bytes that arrived in the same time;
/// `None` if nothing arrived. With n flows beside one of media an even share is n / (n + 1).
pub fn tcp_share(tcp: u64, media: u64) -> Option<f64> {
    let all = tcp + media;
    (all > 0).then(|| tcp as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_of_textbook_cases() {
        let near = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-12);
        assert_eq!(jain(&[]), None);
        assert!(near(jain(&[3.0]), 1.0));
        assert!(near(jain(&[2.0; 7]), 1.0));
        assert!(near(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25));
        // k of n share evenly: k/n.
        assert!(near(jain(&[5.0, 5.0, 5.0, 0.0]), 0.75));
        assert!(near(jain(&[1.0, 2.0, 3.0]), 36.0 / 42.0));
        assert!(near(jain(&[0.0, 0.0]), 1.0));
    }

    #[test]
    fn tcp_share_of_all_bytes() {
        assert_eq!(tcp_share(0, 0), None);
        assert_eq!(tcp_share(200, 100), Some(2.0 / 3.0));
        assert_eq!(tcp_share(0, 1), Some(0.0));
    }
}
