//! How long before it is asked again?

use jiff::Timestamp;
use reqwest::header::HeaderMap;
use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(30);

/// What the endpoint asks for: `retry-after-ms`, or `Retry-After` as seconds (with a fraction, too) or as an HTTP date.
pub(super) fn asked_for(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok().filter(|n| *n >= 0.0);
    if let Some(ms) = text("retry-after-ms").and_then(number) {
        return Some(seconds(ms / 1e3));
    }
    let after = text("retry-after")?;
    number(after).map(seconds).or_else(|| until(after, now))
}

fn seconds(n: f64) -> Duration {
    Duration::try_from_secs_f64(n).unwrap_or(Duration::MAX)
}

fn until(date: &str, now: Timestamp) -> Option<Duration> {
    let then = jiff::fmt::rfc2822::parse(date).ok()?.timestamp();
    Some(Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// Where it asks for nothing: twice as long each time, of which a random part is waited, at least half.
pub(super) fn own(first: Duration, retry: u32) -> Duration {
    let whole = first.saturating_mul(2_u32.saturating_pow(retry.saturating_sub(1))).min(LONGEST);
    whole.mul_f64(rand::random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    fn wait(name: &'static str, value: &'static str) -> Option<Duration> {
        let headers = [(HeaderName::from_static(name), HeaderValue::from_static(value))].into_iter().collect();
        asked_for(&headers, "2026-03-04T05:06:07Z".parse().unwrap())
    }

    #[test]
    fn every_spelling_of_the_wait_is_understood() {
        assert_eq!(wait("retry-after", "2"), Some(Duration::from_secs(2)));
        assert_eq!(wait("retry-after", "1.5"), Some(Duration::from_millis(1500)));
        assert_eq!(wait("retry-after-ms", "250"), Some(Duration::from_millis(250)));
        assert_eq!(wait("retry-after", "Wed, 04 Mar 2026 05:06:37 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(wait("retry-after", "Wed, 04 Mar 2026 05:06:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("retry-after", "1e300"), Some(Duration::MAX));
    }

    #[test]
    fn a_wait_that_makes_no_sense_is_passed_over() {
        for value in ["-3", "NaN", "soon", ""] {
            assert_eq!(wait("retry-after", value), None, "{value}");
        }
    }

    #[test]
    fn our_own_wait_doubles_and_stays_below_half_a_minute() {
        let first = Duration::from_millis(100);
        for (retry, whole) in [(1, 100), (2, 200), (5, 1600), (40, 30_000)] {
            let wait = own(first, retry).as_millis();
            assert!(whole / 2 <= wait && wait <= whole, "{wait} of {whole} ms");
        }
    }
}
